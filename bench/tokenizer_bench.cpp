// Speed of the tokenizer on one core: tokenizer_bench harris_segments.json TEXT...
//
// Prints MB of text a second of processor time, the best of several passes over each file held in memory.
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace {

// Time that this thread ran, so that a busy machine does not count against it.
double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

template <class Work>
double best_seconds(Work work) {
  double best = 1e9;
  for (int pass = 0; pass < 9; ++pass) {
    const double begin = thread_seconds();
    work();
    best = std::min(best, thread_seconds() - begin);
  }
  return best;
}

void measure(const andrea::Tokenizer& tokenizer, const std::string& name, const std::string& text) {
  std::vector<std::int32_t> ids;
  const double encoding = best_seconds([&] {
    ids.clear();
    tokenizer.encode_append(text, ids);
  });
  std::string back;
  const double decoding = best_seconds([&] { back = tokenizer.decode(ids.data(), ids.size()); });
  const double megabytes = static_cast<double>(text.size()) / 1e6;
  std::printf("%-24s %8.1f MB  %6.3f bytes/id  encode %7.1f MB/s  decode %7.1f MB/s  %s\n", name.c_str(),
              megabytes, static_cast<double>(text.size()) / static_cast<double>(ids.size()),
              megabytes / encoding, megabytes / decoding,
              back == text ? "round trip ok" : "ROUND TRIP BROKEN");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s harris_segments.json TEXT...\n", argv[0]);
    return 64;
  }
  const andrea::Tokenizer tokenizer = andrea::Tokenizer::load(argv[1]);
  for (int i = 2; i < argc; ++i) {
    std::ifstream file(argv[i], std::ios::binary);
    const std::string text((std::istreambuf_iterator<char>(file)), {});
    measure(tokenizer, std::string(argv[i]).substr(std::string(argv[i]).rfind('/') + 1), text);
  }
  std::string longest;
  for (const std::string& segment : tokenizer.segments())
    if (segment.size() > longest.size()) longest = segment;
  std::string almost;
  while (almost.size() < 4'000'000) almost += longest.substr(0, longest.size() - 1);
  std::string noise(4'000'000, '\0');
  std::uint32_t state = 1;
  for (char& c : noise) c = static_cast<char>((state = state * 1664525U + 1013904223U) >> 24);
  measure(tokenizer, "(one letter)", std::string(4'000'000, 'a'));
  measure(tokenizer, "(longest less one)", almost);
  measure(tokenizer, "(random bytes)", noise);
  return 0;
}
