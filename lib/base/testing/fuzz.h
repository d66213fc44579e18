// A decoder of untrusted bytes under random damage. A file *_fuzz.cc defines TheFuzzTarget(); fusionllm_fuzzer() of cmake/Targets.cmake
// makes of it an ordinary test, which damages the seeds by number (fuzz_driver.cc), and under the preset `fuzz` a libFuzzer program, which
// lets coverage guide the damage (libfuzzer_driver.cc, tools/fuzz.sh). Only for tests.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

// A promise that must hold whatever the input. Ends the process: the drivers have no other way to say so that both understand.
#define FUZZ_CHECK(condition)                                                             \
  do {                                                                                    \
    if (!(condition)) {                                                                   \
      std::fprintf(stderr, "%s:%d: does not hold: %s\n", __FILE__, __LINE__, #condition); \
      std::abort();                                                                       \
    }                                                                                     \
  } while (false)

namespace fusionllm::base {

struct FuzzTarget {
  // Inputs that the decoder accepts, with everything in them that it knows. The same in every run.
  std::vector<std::string> (*seeds)();
  // Pieces of text that mean much to the decoder; damage puts them in. May be empty.
  std::vector<std::string> (*words)();
  // Decodes `input`, whose bytes end where memory does that a sanitizer watches. Returns whether it was accepted.
  // FUZZ_CHECKs what must hold besides: what was accepted can be used, prints, and reads back.
  bool (*accepts)(absl::string_view input);
};

// Defined by the *_fuzz.cc.
FuzzTarget TheFuzzTarget();

}  // namespace fusionllm::base
