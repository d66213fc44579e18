// What names of parameters say by themselves: which numbered layers there are, what only lies beside parameters, and which patterns of
// spec.model.init.skip would match them. Pure functions.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "lib/models/family.h"

namespace fusionllm::workload {

// What lies beside parameters in files of others, and says nothing of the model: counters of batch norms, what optimizers keep, and what
// models of `family` (may be null) have there.
bool IsBuffer(absl::string_view name, const models::Family* family);

// How far names count: by the text in front of a number, the greatest number that follows it ("transformer.h." -> 11).
class NameCounts {
 public:
  void Add(absl::string_view name);
  // "transformer.h.12" of "transformer.h.12.ln_1.weight" where the others count to 11: a layer that none of them has. Empty: there is none,
  // or nothing is counted there.
  std::string Beyond(absl::string_view name) const;

 private:
  std::map<std::string, int64_t, std::less<>> greatest_;
};

// Patterns that match `names` and as little else of `all` as can be: whole layers beyond `counts`, whole modules, else names.
std::vector<std::string> PatternsFor(const std::vector<std::string>& names, const std::vector<std::string>& all, const NameCounts& counts);

}  // namespace fusionllm::workload
