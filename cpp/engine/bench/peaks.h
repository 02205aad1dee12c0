#pragma once

#include <functional>

#include "engine/bench/bench.h"

namespace andrea {

/// Best milliseconds of device time of `work`, run under `key` (see Device::run) some times over.
double best_ms(Device& device, std::int64_t key, int replays, const std::function<void()>& work);

/// Allocates what it needs and gives it back; leaves the back end without scratch memory. Uses key to
/// key + 2.
DevicePeaks measure_peaks(Backend& backend, std::int64_t key, bool allow_tf32);

}  // namespace andrea
