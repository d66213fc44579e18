#include "services/broker/link_state.h"

#include <map>
#include <vector>

#include "lib/base/status_macros.h"
#include "lib/transport/shared_buckets.h"

namespace fusionllm::services {

absl::Status CreateLinkState(const job::LinkTable& links, const std::string& path) {
  std::map<std::string, double> rates;
  for (const job::LinkTable::Place& from : links.devices()) {
    for (const job::LinkTable::Place& to : links.devices()) {
      if (from.device.name == to.device.name) continue;
      FUSIONLLM_ASSIGN_OR_RETURN(const job::EffectiveLink link, links.Between(from.device.name, to.device.name));
      for (const job::LinkResource& resource : link.path) rates[resource.name] = static_cast<double>(resource.bandwidth.bits_per_s) / 8;
    }
  }
  std::vector<transport::BucketSpec> buckets;
  for (const auto& [name, rate] : rates) buckets.push_back({.name = name, .bytes_per_s = rate});
  return transport::SharedBuckets::Create(path, buckets).status();
}

}  // namespace fusionllm::services
