// How a back end makes its matrix products: what a resumed run compares to know whether its bits go on.
#pragma once

#include <string>
#include <vector>

namespace andrea {

struct GemmChoice {
  std::string product;    ///< kind, m x n x k, addend, epilogue, types, alignment: the question
  std::string algorithm;  ///< algorithm, tile, stages, split-K, reduction, workspace: the answer

  bool operator==(const GemmChoice& other) const {
    return product == other.product && algorithm == other.algorithm;
  }
};

/// Sorted by product. On a GPU it grows as products are made for the first time.
struct GemmChoices {
  std::string library;  ///< "cuBLASLt 13.1.0", "OpenBLAS 0.3.30 Zen"
  std::vector<GemmChoice> products;

  bool operator==(const GemmChoices& other) const {
    return library == other.library && products == other.products;
  }
};

/// One line for each difference: another library, and products that both know but make in different ways. A
/// product that only one of them has made yet is no difference.
std::vector<std::string> gemm_differences(const GemmChoices& then, const GemmChoices& now);

}  // namespace andrea
