#include "kernels/gemm_choices.h"

#include <map>

namespace andrea {

std::vector<std::string> gemm_differences(const GemmChoices& then, const GemmChoices& now) {
  std::vector<std::string> lines;
  if (then.library != now.library)
    lines.push_back("the matrix products were by " + then.library + ", they are by " + now.library);
  std::map<std::string, std::string> before;
  for (const GemmChoice& choice : then.products) before[choice.product] = choice.algorithm;
  for (const GemmChoice& choice : now.products) {
    const auto found = before.find(choice.product);
    if (found != before.end() && found->second != choice.algorithm)
      lines.push_back(choice.product + " was made by " + found->second + ", now by " + choice.algorithm);
  }
  return lines;
}

}  // namespace andrea
