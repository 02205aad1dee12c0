// The engine as Python holds it: one call at a time, whatever thread it comes from.
#pragma once

#include <mutex>

#include "engine/model/engine.h"

namespace andrea {

/// Calls release the GIL first and take the mutex then, so two Python threads wait for each other instead of
/// racing. Recursive: a callback of a running trainer may use the engine it was called from.
struct LockedEngine {
  LockedEngine(const Experiment& experiment, const EngineOptions& options) : engine(experiment, options) {}
  Engine engine;
  std::recursive_mutex mutex;
};

}  // namespace andrea
