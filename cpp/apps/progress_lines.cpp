#include "apps/progress_lines.h"

#include <cmath>
#include <cstdio>

namespace andrea {
namespace {

std::string duration(double seconds) {
  if (seconds < 0) return "?";
  const auto total = static_cast<long long>(std::llround(seconds));
  char text[48];
  std::snprintf(text, sizeof text, "%lld:%02lld:%02lld", total / 3600, total / 60 % 60, total % 60);
  return text;
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
  if (quiet_ && !warning) return;
  std::fprintf(warning ? stderr : stdout, "%s%s\n", warning ? "warning: " : "", e.message.c_str());
  std::fflush(warning ? stderr : stdout);
}

}  // namespace andrea
