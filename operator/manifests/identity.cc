#include "operator/manifests/identity.h"

#include <algorithm>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "lib/base/host_port.h"

namespace fusionllm::op::manifests {

int64_t CountTraining(const std::vector<ExecutorSlot>& slots) {
  return std::count_if(slots.begin(), slots.end(), [](const ExecutorSlot& slot) { return !slot.spare; });
}

std::string DeviceName(const ExecutorSlot& slot) { return absl::StrCat(slot.cluster, "-", slot.index); }

std::string PlacementText(int64_t attempt, const std::vector<ExecutorSlot>& slots) {
  const auto one = [](std::string* out, const ExecutorSlot& slot) { absl::StrAppend(out, DeviceName(slot), slot.spare ? "*" : ""); };
  return absl::StrCat(attempt, ":", absl::StrJoin(slots, ",", one));
}

std::vector<ExecutorSlot> ParsePlacement(int64_t attempt, const std::string& text) {
  absl::string_view list = text;
  if (!absl::ConsumePrefix(&list, absl::StrCat(attempt, ":"))) return {};
  std::vector<ExecutorSlot> slots;
  for (absl::string_view name : absl::StrSplit(list, ',', absl::SkipEmpty())) {
    ExecutorSlot slot;
    slot.spare = absl::ConsumeSuffix(&name, "*");
    const size_t dash = name.rfind('-');
    if (dash == absl::string_view::npos || dash == 0 || !absl::SimpleAtoi(name.substr(dash + 1), &slot.index) || slot.index < 0) return {};
    slot.cluster = std::string(name.substr(0, dash));
    slots.push_back(std::move(slot));
  }
  return slots;
}

std::string AddressesText(const std::map<std::string, std::string>& addresses) {
  return absl::StrJoin(addresses, ",", absl::PairFormatter("="));
}

std::map<std::string, std::string> ParseAddresses(const std::string& text) {
  std::map<std::string, std::string> addresses;
  for (const absl::string_view entry : absl::StrSplit(text, ',', absl::SkipEmpty())) {
    const size_t equals = entry.find('=');
    if (equals == absl::string_view::npos || !base::CheckDialable(entry.substr(equals + 1)).ok()) continue;
    addresses.emplace(entry.substr(0, equals), entry.substr(equals + 1));
  }
  return addresses;
}

std::string ExecutorPodName(const JobIdentity& job, const ExecutorSlot& slot, int64_t attempt) {
  return absl::StrCat(job.name, "-", DeviceName(slot), "-r", attempt);
}

std::string BrokerPodName(const JobIdentity& job, int64_t attempt) { return absl::StrCat(job.name, "-broker-r", attempt); }
std::string OwnerConfigMapName(const JobIdentity& job) { return absl::StrCat(job.name, "-anchor"); }
std::string JobDocumentName(const JobIdentity& job) { return absl::StrCat(job.name, "-job"); }
std::string BrokerServiceName(const JobIdentity& job) { return absl::StrCat(job.name, "-broker"); }
std::string ExecutorServiceName(const JobIdentity& job, const std::string& device) { return absl::StrCat(job.name, "-", device); }
std::string BrokerSecretName(const JobIdentity& job) { return absl::StrCat(job.name, "-broker"); }
std::string ExecutorSecretName(const JobIdentity& job, int index) {
  const int which = index / kExecutorsPerSecret;
  return absl::StrCat(job.name, "-executors", which > 0 ? absl::StrCat("-", which) : "");
}
std::string AuthoritySecretName(const JobIdentity& job) { return absl::StrCat(job.name, "-authority"); }

std::map<std::string, std::string> JobLabels(const JobIdentity& job) {
  std::map<std::string, std::string> labels = {{"app.kubernetes.io/name", "fusionllm"},
                                               {"app.kubernetes.io/instance", job.name},
                                               {"app.kubernetes.io/managed-by", "fusion-operator"},
                                               {kOriginLabel, job.origin},
                                               {kJobLabel, job.name},
                                               {kJobUidLabel, job.uid}};
  if (!job.hub.empty()) labels[kHubLabel] = job.hub;
  return labels;
}

std::string JobSelector(const JobIdentity& job) { return absl::StrCat(kOriginLabel, "=", job.origin, ",", kJobUidLabel, "=", job.uid); }

}  // namespace fusionllm::op::manifests
