// What names of parameters in a file tell of a model (Family::DifferencesFrom). Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "lib/models/family.h"

namespace fusionllm::models {

// How many numbered modules follow `prefix`: the greatest number and one more.
int64_t CountModules(const StoredShapes& stored, absl::string_view prefix);

// Of a tensor of so many dimensions whose shape is known.
std::optional<std::vector<int64_t>> ExtentsOf(const StoredShapes& stored, const char* name, size_t rank);

// Fields that differ.
class SizeDifferences {
 public:
  void Add(absl::string_view field, const std::string& from, const std::string& to);
  void Add(absl::string_view field, int64_t from, int64_t to);
  std::vector<SizeDifference> Take() { return std::move(found_); }

 private:
  std::vector<SizeDifference> found_;
};

}  // namespace fusionllm::models
