// Rules that look at one file at a time: banned text, sizes, include guards.
//
// A line that has to break a rule says so itself: `tidy-allow: RULE because ...` in a comment on that line lifts RULE there.
#pragma once

#include <vector>

#include "tests/tidy/finding.h"

namespace fusionllm::tidy {

inline constexpr int kWarnLines = 500;
inline constexpr int kMaxLines = 1000;

// Rules, by name:
//   using-namespace   a header opens a namespace for everyone who includes it
//   sleep             a *_test.cc sleeps instead of waiting for a condition
//   rand              the C generator: global state, no seed that a failure could print
//   port              a fixed port in C++ code; ask for port 0 and read back what was given
//   unfinished        a note that something is left to do: finish it, or write it in docs/reference/known-limits.md
//   iostream          <iostream> in lib/: static initialisers, and libraries do not print
//   raw-mutex         std::mutex in code that ships: lib/base/mutex.h has one that clang's analysis knows
//   unguarded-mutex   a base::Mutex of which neither a member nor a comment says what it is for
//   fail-open         a script of e2e/ takes the silence of a command that failed for its answer
//   machine-path      a path that exists on one machine only
//   private-word      a name in C++ code has a word that only this project uses (told, patience, kMost..) where the field has a term;
//                     a comment or a string may have it
//   pragma-once       a header without #pragma once
//   length            more than kMaxLines lines (an error) or kWarnLines (a warning)
// Files of this folder are exempt from banned text: they have to spell it.
std::vector<Finding> CheckBans(const SourceFile& file);

}  // namespace fusionllm::tidy
