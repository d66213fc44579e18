#include "lib/planning/cost_models.h"

#include <optional>
#include <vector>

#include "absl/strings/str_format.h"
#include "lib/base/status_macros.h"
#include "lib/estimator/rate_fit.h"
#include "lib/opdag/op_schema.h"

namespace fusionllm::planning {

absl::StatusOr<std::map<std::string, estimator::OpRate>> RatesOf(const std::map<std::string, wire::OpProfile>& ops) {
  std::vector<estimator::Sample> samples;
  for (const auto& [signature, op] : ops) {
    const std::optional<opdag::OpClass> op_class = estimator::ClassNamed(op.op_class);
    if (op.seconds <= 0 || op.relative_error > 0 || !op_class.has_value()) continue;
    samples.push_back({.signature = signature, .op_class = *op_class, .flops = op.flops, .bytes = op.bytes, .seconds = op.seconds});
  }
  FUSIONLLM_ASSIGN_OR_RETURN(const auto fitted, estimator::FitRates(samples));
  std::map<std::string, estimator::OpRate> rates;
  for (int c = 0; c < opdag::kOpClassCount; ++c) {
    if (fitted[c].samples > 0) rates[std::string(opdag::Name(static_cast<opdag::OpClass>(c)))] = fitted[c];
  }
  return rates;
}

absl::StatusOr<estimator::CostModel> CostModelOf(const wire::DeviceProfile& device, const std::string& data_kind) {
  estimator::CostModel model{.update_seconds_per_element = device.update_seconds_per_element};
  std::map<std::string, estimator::OpRate> rates = device.rates;
  if (rates.empty()) {
    FUSIONLLM_ASSIGN_OR_RETURN(rates, RatesOf(device.ops));
  }
  for (const auto& [name, rate] : rates) {
    // A class that this build does not know has no ops in its graphs either.
    if (const auto op_class = estimator::ClassNamed(name); op_class.has_value()) model.rates[static_cast<size_t>(*op_class)] = rate;
  }
  for (const auto& [signature, op] : device.ops) {
    if (op.relative_error > 0) {
      model.inferred[signature] = {.seconds = op.seconds, .relative_error = op.relative_error};
    } else {
      model.measured[signature] = op.seconds;
    }
  }
  if (device.ops.empty() && rates.empty()) {
    return absl::InvalidArgumentError(absl::StrFormat("the profile of device '%s' has no op times", device.name));
  }
  estimator::FillMissingRates(model);
  if (const auto data = device.data_seconds_per_byte.find(data_kind); data != device.data_seconds_per_byte.end()) {
    model.data_seconds_per_byte = data->second;
  }
  return model;
}

}  // namespace fusionllm::planning
