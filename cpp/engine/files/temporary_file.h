// The name under which a file is made before it is renamed, and what killed processes left of such names.
#pragma once

#include <string>

namespace andrea {

/// `.NAME.PID.tmp` beside `path`, PID our own. Files of that form whose process is gone are removed; those of
/// living ones stay. Never throws for what it cannot look at or remove: the write itself will tell.
std::string temporary_beside(const std::string& path);

}  // namespace andrea
