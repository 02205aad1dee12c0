// andrea._core: one file a topic, no logic: convert, release the GIL, call.
#include <nanobind/nanobind.h>

#include "bindings/topics.h"

NB_MODULE(_core, m) {
  m.doc() = "The C++ engine of andrea";
  m.attr("__version__") = ANDREA_VERSION;
  m.attr("VERSION") = ANDREA_VERSION;  // stubs leave names with underscores out
  andrea::init_errors(m);
  andrea::init_tokenizer(m);
  andrea::init_tokenizer_training(m);
  andrea::init_files(m);
  andrea::init_engine(m);
  andrea::init_measure(m);
  andrea::init_trainer(m);
}
