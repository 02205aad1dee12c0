// Where this code was installed: libraries that travel with it lie beside it.
#pragma once

#include <string>

namespace andrea {

/// Folder of the program or module that holds this code, with a slash at its end; empty if the system does
/// not say.
std::string own_folder();

}  // namespace andrea
