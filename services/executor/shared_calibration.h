// What one executor measured of a machine, for the other executors there that emulate devices of it in the same run.
//
// They all measure the same machine, one after the other. With one measurement a run begins sooner, and devices that are equal in the
// topology are equal to the planner. A folder of profiles, one for each back end and number of threads, in the run's output directory. Used
// by who holds the machine's lock (machine_lock.h).
#pragma once

#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "lib/wire/profile_json.h"

namespace fusionllm::services {

class SharedCalibration {
 public:
  // `incarnation`: of the broker; what was measured in another one counts no more, since the machine may be another. Both empty: nothing is
  // shared.
  SharedCalibration(std::string directory, std::string incarnation)
      : directory_(std::move(directory)), incarnation_(std::move(incarnation)) {}

  // What is a device's own (name, site, memory, scale, spare) is that of who measured. None: that was not measured yet, or what lies there
  // cannot be read.
  std::optional<wire::DeviceProfile> Find(const std::string& backend, int threads) const;
  // Errors: those of writing.
  absl::Status Keep(const wire::DeviceProfile& profile) const;

 private:
  std::string PathOf(const std::string& backend, int threads) const;

  std::string directory_, incarnation_;
};

}  // namespace fusionllm::services
