#include "engine/data/btok.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "engine/data/loader.h"
#include "engine/errors.h"
#include "engine/files/posix_file.h"
#include "engine/hash/xxh64.h"

namespace andrea {
namespace {

constexpr std::size_t kHeaderBytes = 64;
constexpr std::uint32_t kVersion = 1;
constexpr std::uint64_t kLargestCount = std::uint64_t{1} << 48;

template <class Word>
Word load(const unsigned char* p) {
  Word word;
  std::memcpy(&word, p, sizeof word);
  return word;
}

[[noreturn]] void refuse(const std::string& path, const std::string& what) {
  throw DataError(path + ": " + what + "; pack it again with `andrea data pack`");
}

/// The id at index i of ids that are `width` bytes wide.
std::uint32_t id_at(const unsigned char* ids, int width, std::int64_t i) {
  return width == 2 ? load<std::uint16_t>(ids + 2 * i) : load<std::uint32_t>(ids + 4 * i);
}

}  // namespace

BtokFile::BtokFile(const std::string& path) : path_(path) {
  PosixFile file;
  try {
    // O_NONBLOCK: a named pipe in the place of the file must not hang the run.
    file = PosixFile::open(path, O_RDONLY | O_NONBLOCK);
  } catch (const IoError& error) {
    throw IoError(std::string("no source file: ") + error.what());
  }
  struct stat status{};
  if (::fstat(file.fd(), &status) != 0) throw_io_error("stat", path, errno);
  if (!S_ISREG(status.st_mode)) refuse(path, "this is not a regular file");
  const auto bytes = static_cast<std::size_t>(status.st_size);
  if (bytes < kHeaderBytes)
    refuse(path, "the file has " + std::to_string(bytes) + " bytes, the header alone needs 64");

  unsigned char header[kHeaderBytes];
  if (file.read_at(header, kHeaderBytes, 0) != kHeaderBytes) refuse(path, "the header cannot be read");
  if (std::memcmp(header, "BTOK", 4) != 0)
    refuse(path, "this is no .btok file (it does not begin with BTOK)");
  const auto version = load<std::uint32_t>(header + 4);
  if (version != kVersion)
    refuse(path, "version " + std::to_string(version) + " of the format, this program reads version 1");
  vocab_size_ = load<std::uint32_t>(header + 8);
  if (vocab_size_ <= kBos)
    refuse(path, "vocabulary size " + std::to_string(vocab_size_) +
                     " in the header; 256 bytes and BOS need at least 257");
  const auto width = load<std::uint32_t>(header + 12);
  const std::uint32_t right_width = vocab_size_ <= 65536 ? 2 : 4;
  if (width != right_width)
    refuse(path, "token width " + std::to_string(width) + " in the header; a vocabulary of " +
                     std::to_string(vocab_size_) + " needs " + std::to_string(right_width));
  width_ = static_cast<int>(width);
  const auto n_docs = load<std::uint64_t>(header + 16);
  const auto n_tokens = load<std::uint64_t>(header + 24);
  const auto n_bytes = load<std::uint64_t>(header + 32);
  tokenizer_hash_ = load<std::uint64_t>(header + 40);
  content_hash_ = load<std::uint64_t>(header + 48);
  if (n_docs > kLargestCount || n_tokens > kLargestCount || n_bytes > kLargestCount)
    refuse(path, "impossible counts in the header: " + std::to_string(n_docs) + " documents, " +
                     std::to_string(n_tokens) + " ids, " + std::to_string(n_bytes) + " bytes of text");
  if (n_tokens < n_docs)
    refuse(path, "the header says " + std::to_string(n_docs) + " documents but only " +
                     std::to_string(n_tokens) + " ids, and no document may be empty");
  if (n_bytes < n_tokens)
    refuse(path, "the header says " + std::to_string(n_tokens) + " ids for only " + std::to_string(n_bytes) +
                     " bytes of text, and each id stands for one byte at least");
  for (std::size_t i = 56; i < kHeaderBytes; ++i)
    if (header[i] != 0) refuse(path, "byte " + std::to_string(i) + " of the header must be zero");
  const std::uint64_t expected = kHeaderBytes + 8 * (n_docs + 1) + width * n_tokens;
  if (bytes != expected)
    refuse(path, "the file has " + std::to_string(bytes) + " bytes, its header promises " +
                     std::to_string(expected) + " (" + std::to_string(n_docs) + " documents, " +
                     std::to_string(n_tokens) + " ids)");
  n_docs_ = static_cast<std::int64_t>(n_docs);
  n_tokens_ = static_cast<std::int64_t>(n_tokens);
  n_bytes_ = static_cast<std::int64_t>(n_bytes);

  map_ = std::make_unique<MappedFile>(std::move(file));
  if (map_->bytes() != bytes) refuse(path, "its length changed while it was opened");
  // The header is 64 bytes and a map begins at a page, so the offsets are aligned.
  offsets_ = reinterpret_cast<const std::uint64_t*>(map_->data() + kHeaderBytes);
  ids_ = map_->data() + kHeaderBytes + 8 * (n_docs + 1);

  std::string fault;
  if (offsets_[0] != 0) fault = "the first offset is " + std::to_string(offsets_[0]) + ", not 0";
  for (std::int64_t doc = 0; fault.empty() && doc < n_docs_; ++doc) {
    if (offsets_[doc + 1] <= offsets_[doc])
      fault = "document " + std::to_string(doc) + " is empty or ends before it begins (offsets " +
              std::to_string(offsets_[doc]) + " and " + std::to_string(offsets_[doc + 1]) + ")";
  }
  if (fault.empty() && offsets_[n_docs_] != n_tokens)
    fault = "the last offset is " + std::to_string(offsets_[n_docs_]) + ", the header says " +
            std::to_string(n_tokens) + " ids";
  if (!fault.empty()) refuse(path, fault);
}

void BtokFile::verify(std::int64_t vocab_size) const {
  if (vocab_size != vocab_size_)
    throw DataError(path_ + ": packed with a vocabulary of " + std::to_string(vocab_size_) +
                    " ids, but the model has " + std::to_string(vocab_size) + "; set model.vocab_size to " +
                    std::to_string(vocab_size_) + " or pack the source with the right tokenizer");
  for (std::int64_t doc = 0; doc < n_docs_; ++doc) {
    const std::int64_t begin = document_begin(doc);
    const std::int64_t end = begin + document_length(doc);
    for (std::int64_t i = begin; i < end; ++i) {
      const std::uint32_t id = id_at(ids_, width_, i);
      if (id >= static_cast<std::uint64_t>(vocab_size))
        refuse(path_, "document " + std::to_string(doc) + " holds id " + std::to_string(id) + " at place " +
                          std::to_string(i - begin) + "; the vocabulary has " + std::to_string(vocab_size) +
                          " ids");
      if (id == static_cast<std::uint32_t>(kBos))
        refuse(path_, "document " + std::to_string(doc) + " holds BOS (256) at place " +
                          std::to_string(i - begin) + "; the loader puts BOS itself");
    }
  }
  const std::uint64_t hash = xxh64(map_->data() + kHeaderBytes, map_->bytes() - kHeaderBytes);
  if (hash != content_hash_)
    refuse(path_, "the content has hash " + hash_hex(hash) + ", the header says " + hash_hex(content_hash_) +
                      ": the file is damaged");
}

void BtokFile::require_unchanged() const {
  if (!map_->written_to()) return;
  verify(vocab_size_);
  map_->accept();
}

void BtokFile::copy_ids(std::int64_t begin, std::int64_t n, std::int32_t* out) const {
  if (begin < 0 || n < 0 || begin > n_tokens_ || n > n_tokens_ - begin)
    throw DataError(path_ + ": " + std::to_string(n) + " ids from place " + std::to_string(begin) +
                    " asked for, the file has " + std::to_string(n_tokens_));
  if (width_ == 2) {
    const unsigned char* p = ids_ + 2 * begin;
    for (std::int64_t i = 0; i < n; ++i) out[i] = load<std::uint16_t>(p + 2 * i);
  } else {
    std::memcpy(out, ids_ + 4 * begin, static_cast<std::size_t>(n) * 4);
  }
}

}  // namespace andrea
