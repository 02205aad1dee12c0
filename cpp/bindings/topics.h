// What each topic file adds to the module.
#pragma once

#include <nanobind/nanobind.h>

namespace andrea {

void init_errors(nanobind::module_& m);
void init_tokenizer(nanobind::module_& m);
void init_tokenizer_training(nanobind::module_& m);
void init_files(nanobind::module_& m);
void init_engine(nanobind::module_& m);
void init_measure(nanobind::module_& m);
void init_trainer(nanobind::module_& m);

}  // namespace andrea
