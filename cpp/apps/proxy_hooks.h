// --proxy: the trainer's policy and sample scores come from `andrea proxy`.
#pragma once

#include <string>

#include "engine/run/trainer.h"

namespace andrea {

/// Makes `hooks` ask the proxy at `address`, waiting up to `timeout_seconds` at a phase edge. What it has to
/// say (lost, back again) goes to hooks->on_event, which must be set before and outlive the run.
/// ConfigError if the address is none.
void use_proxy(const std::string& address, double timeout_seconds, TrainerHooks* hooks);

}  // namespace andrea
