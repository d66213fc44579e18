// Objects as they should not be written, for tests of what reads objects that others wrote. Header-only.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace fusionllm::kube::testing {

// Copies of an object in each of which one value, at any depth, is gone or has become a value of another type or an absurd one of its own;
// one of them is whole. Deterministic; thirteen copies for each value that there is.
class Mutations {
 public:
  explicit Mutations(nlohmann::json object) : object_(std::move(object)) {
    std::set<std::string> places;
    const nlohmann::json flat = object_.flatten();
    for (const auto& [path, value] : flat.items()) {
      for (nlohmann::json::json_pointer at(path); places.insert(at.to_string()).second && !at.empty();) at = at.parent_pointer();
    }
    places_.assign(places.begin(), places.end());
  }

  uint64_t size() const { return places_.size() * (Odd().size() + 1); }

  nlohmann::json Make(uint64_t number) const {
    const nlohmann::json::json_pointer at(places_[number / (Odd().size() + 1)]);
    const uint64_t odd = number % (Odd().size() + 1);
    nlohmann::json mutation = object_;
    if (odd < Odd().size()) {
      mutation[at] = Odd()[odd];
    } else if (!at.empty()) {  // there is no copy without the whole
      nlohmann::json& parent = mutation[at.parent_pointer()];
      if (parent.is_object()) {
        parent.erase(at.back());
      } else {
        parent.erase(std::stoul(at.back()));
      }
    }
    return mutation;
  }

  std::vector<nlohmann::json> All() const {
    std::vector<nlohmann::json> all;
    for (uint64_t i = 0; i < size(); ++i) all.push_back(Make(i));
    return all;
  }

 private:
  static const std::vector<nlohmann::json>& Odd() {
    using nlohmann::json;
    static const std::vector<json> kOdd = {nullptr,       true,           7,          -1,
                                           UINT64_MAX,    1e300,          "",         "odd",
                                           json::array(), json::object(), {{"a", 1}}, json::array({nullptr, 7, "odd", json::object()})};
    return kOdd;
  }

  const nlohmann::json object_;
  std::vector<std::string> places_;  // as JSON pointers
};

}  // namespace fusionllm::kube::testing
