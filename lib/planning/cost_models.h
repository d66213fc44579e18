// From a measured device to the cost model that prices a job's ops on it.
//
// Pure functions.
#pragma once

#include <map>
#include <string>

#include "absl/status/statusor.h"
#include "lib/estimator/cost_model.h"
#include "lib/wire/profile_json.h"

namespace fusionllm::planning {

// The rates of every class of ops that is among the measured, by opdag::Name(OpClass). Errors: those of estimator::FitRates.
absl::StatusOr<std::map<std::string, estimator::OpRate>> RatesOf(const std::map<std::string, wire::OpProfile>& ops);

// The model of a job whose data is of `data_kind`. A profile without rates, but with ops, gets theirs; classes that it lacks are filled in
// from the others. Errors: InvalidArgument for a profile without times.
absl::StatusOr<estimator::CostModel> CostModelOf(const wire::DeviceProfile& device, const std::string& data_kind);

}  // namespace fusionllm::planning
