#include "tokenizer/tokenizer.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "engine/errors.h"

namespace andrea {
namespace {

[[noreturn]] void refuse_id(std::int32_t id, std::size_t position, std::int32_t vocab_size) {
  throw DataError("token id " + std::to_string(id) + " at position " + std::to_string(position) +
                  " is outside this tokenizer's 0.." + std::to_string(vocab_size - 1) +
                  "; were these ids made with another tokenizer?");
}

}  // namespace

Tokenizer::Tokenizer(SegmentTable table) : table_(std::move(table)), hash_(hash_segments(table_.segments)) {
  trie_ = ByteTrie(table_.segments, kFirstSegment);
  const auto vocab = static_cast<std::size_t>(vocab_size());
  head_.assign(vocab * kHeadBytes, '\0');
  length_.assign(vocab, 0);
  offset_.assign(vocab, 0);
  for (std::size_t id = 0; id < vocab; ++id) {
    std::string token;
    if (id < 256) token.assign(1, static_cast<char>(id));
    if (id >= kFirstSegment) token = table_.segments[id - kFirstSegment];
    offset_[id] = static_cast<std::uint32_t>(spelling_.size());
    length_[id] = static_cast<std::uint16_t>(token.size());
    std::memcpy(&head_[id * kHeadBytes], token.data(), std::min(token.size(), kHeadBytes));
    spelling_ += token;
  }
}

Tokenizer Tokenizer::load(const std::string& path) { return Tokenizer(read_segments_file(path)); }

Tokenizer Tokenizer::from_segments(std::vector<std::string> segments) {
  SegmentTable table;
  table.counts.assign(segments.size(), 0);
  table.segments = std::move(segments);
  return from_table(std::move(table));
}

Tokenizer Tokenizer::from_table(SegmentTable table) {
  check_segments(table.segments, "segments");
  if (table.counts.size() != table.segments.size())
    throw DataError("segments: " + std::to_string(table.counts.size()) + " counts for " +
                    std::to_string(table.segments.size()) + " segments");
  return Tokenizer(std::move(table));
}

void Tokenizer::save(const std::string& path) const { write_segments_file(path, table_); }

std::vector<std::int32_t> Tokenizer::encode(std::string_view bytes) const {
  std::vector<std::int32_t> ids;
  encode_append(bytes, ids);
  return ids;
}

void Tokenizer::encode_append(std::string_view bytes, std::vector<std::int32_t>& ids) const {
  // A small buffer that stays in the cache; the vector then grows by what was really written.
  std::array<std::int32_t, 4096> buffer;
  const auto* p = reinterpret_cast<const unsigned char*>(bytes.data());
  const auto* const end = p + bytes.size();
  while (p < end) {
    const std::size_t n = trie_.encode(p, end, buffer.data(), buffer.size());
    ids.insert(ids.end(), buffer.data(), buffer.data() + n);
  }
}

std::string Tokenizer::decode(const std::int32_t* ids, std::size_t n) const {
  const auto vocab = static_cast<std::uint32_t>(vocab_size());
  std::size_t total = 0;
  for (std::size_t i = 0; i < n; ++i) {
    if (static_cast<std::uint32_t>(ids[i]) >= vocab) refuse_id(ids[i], i, vocab_size());
    total += length_[static_cast<std::size_t>(ids[i])];
  }
  std::string text(total, '\0');
  char* out = text.data();
  // Whole 16-byte copies while the string has room for them; the last few tokens are copied exactly.
  const char* const roomy_end = text.data() + total - std::min(total, kHeadBytes);
  for (std::size_t i = 0; i < n; ++i) {
    const auto id = static_cast<std::size_t>(ids[i]);
    const std::size_t length = length_[id];
    if (length <= kHeadBytes && out < roomy_end)
      std::memcpy(out, &head_[id * kHeadBytes], kHeadBytes);
    else
      std::memcpy(out, spelling_.data() + offset_[id], length);
    out += length;
  }
  return text;
}

std::string_view Tokenizer::token_bytes(std::int32_t id) const {
  if (id < 0 || id >= vocab_size()) refuse_id(id, 0, vocab_size());
  const auto i = static_cast<std::size_t>(id);
  return std::string_view(spelling_).substr(offset_[i], length_[i]);
}

}  // namespace andrea
