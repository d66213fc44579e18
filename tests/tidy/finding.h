// What a lint rule has to say about one place in the repository.
#pragma once

#include <string>

namespace fusionllm::tidy {

enum class Severity { kWarning, kError };

struct Finding {
  std::string path;  // from the root of the repository
  int line = 0;      // from 1; 0: the file as a whole
  std::string rule;  // short name, also the word in a line's "tidy-allow: RULE because ..."
  std::string message;
  Severity severity = Severity::kError;
};

// A file of the repository, read whole.
struct SourceFile {
  std::string path;  // from the root of the repository
  std::string text;
};

}  // namespace fusionllm::tidy
