// A table of text with aligned columns for a terminal or a file. Not thread-safe.
#pragma once

#include <string>
#include <vector>

namespace fusionllm::cli {

class TextTable {
 public:
  // A title that starts with '>' is a column aligned to the right.
  explicit TextTable(std::vector<std::string> titles);
  // Missing cells are empty, extra cells are dropped.
  void Row(std::vector<std::string> cells);
  std::string ToString() const;

 private:
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;  // titles first
};

}  // namespace fusionllm::cli
