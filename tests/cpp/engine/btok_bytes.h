// The bytes of a .btok, written from the layout and not by the code under test.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "engine/hash/xxh64.h"

namespace andrea::testing {

struct BtokFields {
  std::uint32_t version = 1;
  std::uint32_t vocab_size = 300;
  std::uint32_t width = 2;
  std::uint64_t n_docs = 0, n_tokens = 0, n_bytes = 0, tokenizer_hash = 7, content_hash = 0;
};

template <class Word>
void put(std::string* out, Word word) {
  out->append(reinterpret_cast<const char*>(&word), sizeof word);
}

using Documents = std::vector<std::vector<std::int32_t>>;

inline std::string btok_content(const Documents& documents, std::uint32_t width) {
  std::string content;
  std::uint64_t offset = 0;
  put(&content, offset);
  for (const auto& document : documents) put(&content, offset += document.size());
  for (const auto& document : documents)
    for (const std::int32_t id : document)
      if (width == 2)
        put(&content, static_cast<std::uint16_t>(id));
      else
        put(&content, static_cast<std::uint32_t>(id));
  return content;
}

inline BtokFields btok_fields(const Documents& documents, std::uint32_t vocab_size = 300) {
  BtokFields fields;
  fields.vocab_size = vocab_size;
  fields.width = vocab_size <= 65536 ? 2 : 4;
  fields.n_docs = documents.size();
  for (const auto& document : documents) fields.n_tokens += document.size();
  fields.n_bytes = 3 * fields.n_tokens;
  const std::string content = btok_content(documents, fields.width);
  fields.content_hash = xxh64(content.data(), content.size());
  return fields;
}

inline std::string btok_bytes(const BtokFields& fields, const std::string& content) {
  std::string bytes = "BTOK";
  put(&bytes, fields.version);
  put(&bytes, fields.vocab_size);
  put(&bytes, fields.width);
  for (const std::uint64_t field : {fields.n_docs, fields.n_tokens, fields.n_bytes, fields.tokenizer_hash,
                                    fields.content_hash, std::uint64_t{0}})
    put(&bytes, field);
  return bytes + content;
}

inline std::string btok_bytes(const Documents& documents, std::uint32_t vocab_size = 300) {
  const BtokFields fields = btok_fields(documents, vocab_size);
  return btok_bytes(fields, btok_content(documents, fields.width));
}

/// Documents of the given lengths; id j of document i tells i and j apart from most others.
inline Documents documents_of_lengths(const std::vector<std::size_t>& lengths) {
  Documents documents;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    documents.emplace_back();
    for (std::size_t j = 0; j < lengths[i]; ++j)
      documents.back().push_back(static_cast<std::int32_t>((i * 37 + j * 11) % 256));
  }
  return documents;
}

}  // namespace andrea::testing
