// The family of exceptions. Each message says what is wrong, where, and what to do about it.
#pragma once

#include <cstddef>
#include <exception>
#include <stdexcept>
#include <string>

namespace andrea {

/// Base of all errors this project throws on purpose.
class Error : public std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// The command or the experiment file asks for something impossible (exit code 78).
class ConfigError : public Error {
  using Error::Error;
};

/// Tokens, tokenizer or text are not what they claim to be (exit code 65).
class DataError : public Error {
  using Error::Error;
};

/// A checkpoint or its state cannot be used (exit code 65).
class CheckpointError : public Error {
  using Error::Error;
};

/// The file system refused: disk full, no permission, a directory in the way (exit code 74).
class IoError : public Error {
  using Error::Error;
};

/// The device or a library on it failed (exit code 70).
class DeviceError : public Error {
  using Error::Error;
};

/// The memory plan does not fit, or an allocation was refused (exit code 78).
class OutOfMemory : public Error {
 public:
  OutOfMemory(const std::string& message, std::size_t needed, std::size_t available)
      : Error(message), needed_bytes(needed), available_bytes(available) {}
  std::size_t needed_bytes;
  std::size_t available_bytes;
};

/// Exit codes of the programs (sysexits.h where it has a word for it).
enum class ExitCode : int {
  kFinished = 0,
  kUsage = 64,
  kBadData = 65,
  kInternal = 70,
  kIo = 74,
  kStoppedEarly = 75,  ///< checkpoint saved, run again with --resume
  kBadConfig = 78,
  kStoppedByGate = 79,  ///< the coherence gate stopped the run, a person must look
};

/// The exit code of what was thrown.
inline ExitCode exit_code_of(const std::exception& error) {
  const auto is = [&error](auto* kind) { return dynamic_cast<decltype(kind)>(&error) != nullptr; };
  if (is(static_cast<const ConfigError*>(nullptr)) || is(static_cast<const OutOfMemory*>(nullptr)))
    return ExitCode::kBadConfig;
  if (is(static_cast<const DataError*>(nullptr)) || is(static_cast<const CheckpointError*>(nullptr)))
    return ExitCode::kBadData;
  return is(static_cast<const IoError*>(nullptr)) ? ExitCode::kIo : ExitCode::kInternal;
}

}  // namespace andrea
