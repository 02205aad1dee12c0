// What several topics read from Python in the same way.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
#include <string>

#include "engine/model/engine.h"

namespace andrea {

/// Threads and bytes as Python gives them: None is the default, numbers must make sense (ConfigError).
EngineOptions engine_options(const std::string& device, std::optional<int> threads, nanobind::handle memory);
/// An Experiment, or the path of one.
Experiment read_experiment(nanobind::handle given, const std::optional<std::string>& precision,
                           std::optional<std::uint32_t> seed);
/// JSON text as Python objects.
nanobind::object parse_json(const std::string& text);

}  // namespace andrea
