#include <algorithm>

#include "tokenizer/tokenizer.h"

namespace andrea {
namespace {

// Number of bytes at the end that begin a character but do not finish it: 0..3. Surrogates written in three
// bytes count as characters here, so that they too come out whole.
std::size_t unfinished_bytes(const std::string& bytes) {
  const auto at = [&bytes](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  for (std::size_t back = 1; back <= std::min<std::size_t>(3, bytes.size()); ++back) {
    const std::size_t first = bytes.size() - back;
    const unsigned char lead = at(first);
    if ((lead & 0xC0U) == 0x80U) continue;
    if (lead < 0xC2 || lead > 0xF4) return 0;
    const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
    if (back >= length) return 0;
    if (back >= 2) {
      const unsigned char second = at(first + 1);
      if (lead == 0xE0 && second < 0xA0) return 0;
      if (lead == 0xF0 && second < 0x90) return 0;
      if (lead == 0xF4 && second > 0x8F) return 0;
    }
    return back;
  }
  return 0;
}

}  // namespace

std::string StreamDecoder::push(const std::int32_t* ids, std::size_t n) {
  std::string ready = tokenizer_->decode(ids, n);
  ready.insert(0, waiting_);
  waiting_.clear();
  const std::size_t keep = unfinished_bytes(ready);
  waiting_ = ready.substr(ready.size() - keep);
  ready.resize(ready.size() - keep);
  return ready;
}

std::string StreamDecoder::finish() {
  std::string rest;
  rest.swap(waiting_);
  return rest;
}

}  // namespace andrea
