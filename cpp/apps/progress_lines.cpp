#include "apps/progress_lines.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <string_view>

#include "tokenizer/utf8.h"

namespace andrea {
namespace {

std::string duration(double seconds) {
  if (seconds < 0) return "?";
  const long long total = std::llround(seconds);
  char text[48];
  std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", total / 3600, total / 60 % 60, total % 60);
  return text;
}

// At most `shown` bytes of a text that a model wrote, fit for a terminal and a log: whole characters, no line
// ends, no control characters.
std::string one_line(std::string_view text, std::size_t shown) {
  std::string line;
  while (!text.empty() && line.size() < shown) {
    const Utf8Char next = first_utf8_char(text);
    if (next.length == 0)
      line += "\xEF\xBF\xBD";
    else if (next.code_point < 0x20 || (next.code_point >= 0x7F && next.code_point < 0xA0))
      line += ' ';
    else
      line += text.substr(0, next.length);
    text.remove_prefix(std::max<std::size_t>(next.length, 1));
  }
  return text.empty() ? line : line + "...";
}

}  // namespace

std::string progress_line(const Progress& p) {
  char text[320];
  std::snprintf(text, sizeof text,
                "step %lld/%lld  loss %.4f  smma %.4f  ppl %.4g  lr %.3g  norm %.3g  %.0f tok/s  left %s",
                static_cast<long long>(p.step), static_cast<long long>(p.steps), static_cast<double>(p.loss),
                p.smma, std::exp(p.smma), p.lr, static_cast<double>(p.grad_norm), p.tokens_per_second,
                duration(p.seconds_left).c_str());
  std::string line = text;
  if (p.loss_scale != 1.0F) line += "  scale " + std::to_string(static_cast<long long>(p.loss_scale));
  if (p.skipped > 0) line += "  skipped " + std::to_string(p.skipped);
  return line;
}

std::string event_line(const Event& e) {
  if (e.kind == "phase" || e.kind == "plan" || e.kind == "gemm") return "";
  if (e.kind != "sample") return e.message;
  return "sample at step " + std::to_string(e.step) + ": " + one_line(e.message, 160);
}

void ProgressLines::progress(const Progress& p) {
  if (quiet_) return;
  const auto now = std::chrono::steady_clock::now();
  const double waited = std::chrono::duration<double>(now - last_time_).count();
  const bool first = last_step_ < 0;
  const bool due = waited >= 5.0 || (waited >= 0.25 && p.step - last_step_ >= 10);
  if (!first && !due && p.step != p.end) return;
  std::printf("%s\n", progress_line(p).c_str());
  std::fflush(stdout);
  last_step_ = p.step;
  last_time_ = now;
}

void ProgressLines::event(const Event& e) const {
  const bool warning = e.kind == "warning" || e.kind == "skip";
  const std::string line = event_line(e);
  if (line.empty() || (quiet_ && !warning)) return;
  std::fprintf(warning ? stderr : stdout, "%s%s\n", warning ? "warning: " : "", line.c_str());
  std::fflush(warning ? stderr : stdout);
}

}  // namespace andrea
