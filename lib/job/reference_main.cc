// Prints docs/reference/job-reference.md; tools/generate/job-reference.sh calls it.
#include <iostream>  // tidy-allow: iostream because this is a program

#include "lib/job/reference.h"

int main() {
  std::cout << fusionllm::job::ReferencePage();
  return std::cout.flush() ? 0 : 1;
}
