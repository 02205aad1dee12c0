// .btok: the packed documents of one source, memory-mapped and checked before use (docs/DATA.md has the
// layout).
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "engine/files/mapped_file.h"

namespace andrea {

/// A read-only .btok file. Documents hold no BOS.
class BtokFile {
 public:
  /// Maps the file and checks every header field and offset. DataError names the file and the field.
  explicit BtokFile(const std::string& path);
  /// Reads everything once: content hash, and every id below vocab_size. DataError names document and id.
  void verify(std::int64_t vocab_size) const;

  /// Cheap, for before each batch: IoError if the file was cut or grew since it was opened. If it was written
  /// to, everything is verified again (DataError).
  void require_unchanged() const;

  const std::string& path() const { return path_; }
  std::int64_t vocab_size() const { return vocab_size_; }
  std::int64_t n_docs() const { return n_docs_; }
  std::int64_t n_tokens() const { return n_tokens_; }
  std::int64_t n_bytes() const { return n_bytes_; }  ///< of the text
  std::uint64_t tokenizer_hash() const { return tokenizer_hash_; }
  std::uint64_t content_hash() const { return content_hash_; }

  std::int64_t document_begin(std::int64_t doc) const { return static_cast<std::int64_t>(offsets_[doc]); }
  std::int64_t document_length(std::int64_t doc) const {
    return static_cast<std::int64_t>(offsets_[doc + 1] - offsets_[doc]);
  }
  /// Copies n ids from position `begin` of the whole file's ids, widened to int32.
  void copy_ids(std::int64_t begin, std::int64_t n, std::int32_t* out) const;

 private:
  std::string path_;
  std::unique_ptr<MappedFile> map_;  // its addresses stay when this is moved
  const std::uint64_t* offsets_ = nullptr;
  const unsigned char* ids_ = nullptr;
  int width_ = 2;
  std::int64_t vocab_size_ = 0, n_docs_ = 0, n_tokens_ = 0, n_bytes_ = 0;
  std::uint64_t tokenizer_hash_ = 0, content_hash_ = 0;
};

}  // namespace andrea
