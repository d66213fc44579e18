#include "lib/wire/grid_json.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_format.h"
#include "lib/base/status_macros.h"
#include "lib/wire/json_reader.h"

namespace fusionllm::wire {
namespace {

using nlohmann::json;
using scheduler::grid::GridProblem;

// Rows of numbers; the side is bounded before anything is copied.
template <typename T>
absl::StatusOr<std::vector<std::vector<T>>> Rows(const json& value, const std::string& path) {
  if (!value.is_array()) return absl::InvalidArgumentError(path + " must be a list of lists of numbers");
  if (value.size() > GridProblem::kMaxDevices) {
    return absl::InvalidArgumentError(absl::StrFormat("%s has %d rows, the limit is %d", path, value.size(), GridProblem::kMaxDevices));
  }
  std::vector<std::vector<T>> rows;
  for (const json& row : value) {
    if (!row.is_array() || row.size() > GridProblem::kMaxDevices) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s[%d] must be a list of at most %d numbers", path, rows.size(), GridProblem::kMaxDevices));
    }
    std::vector<T>& out = rows.emplace_back();
    for (const json& entry : row) {
      if (!std::is_integral_v<T> && entry.is_null() && out.size() + 1 == rows.size()) {  // the diagonal is not read
        out.push_back(0);
        continue;
      }
      // A whole number of any size is read as a double first: what does not fit must not wrap around into a device that exists.
      const bool whole = entry.is_number_integer() && entry.get<double>() >= -1e9 && entry.get<double>() <= 1e9;
      if (std::is_integral_v<T> ? !whole : !entry.is_number()) {
        return absl::InvalidArgumentError(
            absl::StrFormat("%s[%d][%d] is not a %snumber", path, rows.size() - 1, out.size(), std::is_integral_v<T> ? "whole " : ""));
      }
      out.push_back(entry.get<T>());
    }
  }
  return rows;
}

}  // namespace

absl::StatusOr<scheduler::grid::Network> ParseNetwork(absl::string_view text) {
  FUSIONLLM_ASSIGN_OR_RETURN(const json document, ParseJson(text, "network"));
  absl::Status status;
  ObjectReader in(document, "network", status);
  scheduler::grid::Network network;
  in.Text("name", network.name, kMaxNameBytes, ObjectReader::kOptional);
  int n = 0;
  in.Integer("n", n, 1, GridProblem::kMaxDevices);
  for (const char* key : {"delay_ms", "bandwidth_gbps"}) {
    if (!in.Has(key)) in.Fail(key, "is missing");
  }
  if (!status.ok()) return status;
  FUSIONLLM_ASSIGN_OR_RETURN(network.delay_ms, Rows<double>(document["delay_ms"], "network.delay_ms"));
  FUSIONLLM_ASSIGN_OR_RETURN(network.bandwidth_gbps, Rows<double>(document["bandwidth_gbps"], "network.bandwidth_gbps"));
  if (static_cast<int>(network.delay_ms.size()) != n) {
    return absl::InvalidArgumentError(absl::StrFormat("network.delay_ms has %d rows, n is %d", network.delay_ms.size(), n));
  }
  return network;
}

absl::StatusOr<scheduler::grid::Grid> ParseGrid(absl::string_view text) {
  FUSIONLLM_ASSIGN_OR_RETURN(const json document, ParseJson(text, "grid"));
  if (document.is_object() && document.contains("grid")) return Rows<int>(document["grid"], "grid");
  return Rows<int>(document, "grid");
}

std::string PrintGridPlan(const scheduler::grid::GridPlan& plan, double search_cpu_seconds) {
  return PrintJson({{"grid", plan.grid},
                    {"dp_cost_s", plan.cost.data_parallel_s},
                    {"pp_cost_s", plan.cost.pipeline_s},
                    {"total_s", plan.cost.total_s()},
                    {"search_cpu_seconds", search_cpu_seconds},
                    {"evaluations", plan.evaluations}});
}

}  // namespace fusionllm::wire
