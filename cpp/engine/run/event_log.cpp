#include "engine/run/event_log.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdio>

#include "engine/run/history.h"

namespace andrea {
namespace {

std::string unix_time() {
  const std::chrono::duration<double> now = std::chrono::system_clock::now().time_since_epoch();
  char text[32];
  std::snprintf(text, sizeof text, "%.3f", now.count());
  return text;
}

std::string link_target(const char* path) {
  char text[128];
  const ssize_t n = ::readlink(path, text, sizeof text);
  return n > 0 ? std::string(text, static_cast<std::size_t>(n)) : "";
}

}  // namespace

EventLog::~EventLog() {
  flush();
  if (fd_ >= 0) ::close(fd_);
}

void EventLog::open() {
  fd_ = ::open(path_.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0644);
  struct stat status{};
  if (fd_ >= 0 && (::fstat(fd_, &status) != 0 || !S_ISREG(status.st_mode))) {
    ::close(fd_);
    fd_ = -1;
  }
  // A line that a kill left torn ends here, and readers pass over it.
  char last = '\n';
  if (fd_ >= 0 && status.st_size > 0 && ::pread(fd_, &last, 1, status.st_size - 1) == 1 && last != '\n')
    buffer_.insert(0, "\n");
}

void EventLog::step(const StepReport& report) {
  buffer_ += "[" + std::to_string(report.step) + "," + (report.applied ? shortest(report.loss) : "null") +
             "," + shortest(report.grad_norm) + "," + shortest(static_cast<float>(report.lr)) + "," +
             shortest(report.loss_scale) + "," + unix_time() + "]\n";
  drop_what_is_too_much();
}

void EventLog::event(const std::string& kind, std::int64_t step, const std::string& message,
                     const std::string& more) {
  buffer_ += R"({"kind":)" + json_quote(kind) + R"(,"step":)" + std::to_string(step) + R"(,"time":)" +
             unix_time() + R"(,"message":)" + json_quote(message) + more + "}\n";
  flush();
}

void EventLog::drop_what_is_too_much() {
  if (buffer_.size() <= kMostWaiting) return;
  const std::size_t line = buffer_.find('\n', buffer_.size() - kMostWaiting);
  buffer_.erase(0, line == std::string::npos ? buffer_.size() : line + 1);
}

void EventLog::flush() {
  if (buffer_.empty()) return;
  if (fd_ < 0) open();
  while (fd_ >= 0 && !buffer_.empty()) {
    const ssize_t n = ::write(fd_, buffer_.data(), buffer_.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;  // a full disk, for one: the next flush goes on from here
    buffer_.erase(0, static_cast<std::size_t>(n));
  }
  drop_what_is_too_much();
}

std::string start_details(const Engine& engine, const DeviceInfo& device, std::int64_t end) {
  char host[256] = {};
  if (::gethostname(host, sizeof host - 1) != 0) host[0] = '\0';
  const Experiment& experiment = engine.experiment();
  return R"(,"pid":)" + std::to_string(::getpid()) + R"(,"host":)" + json_quote(host) + R"(,"pid_space":)" +
         json_quote(link_target("/proc/self/ns/pid")) + R"(,"version":)" + json_quote(ANDREA_VERSION) +
         R"(,"device":)" + json_quote(device.name) +
         (device.pci_bus_id.empty() ? "" : R"(,"pci_bus_id":)" + json_quote(device.pci_bus_id)) +
         R"(,"precision":)" + json_quote(precision_name(experiment.train.precision)) + R"(,"n_params":)" +
         std::to_string(engine.shape().n_params) + R"(,"rows":)" + std::to_string(engine.rows_per_step()) +
         R"(,"context":)" + std::to_string(engine.shape().context) + R"(,"end":)" + std::to_string(end) +
         R"(,"config":)" + experiment.effective_json();
}

}  // namespace andrea
