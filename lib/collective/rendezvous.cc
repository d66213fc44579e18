#include "lib/collective/rendezvous.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "lib/base/status_macros.h"

namespace fusionllm::collective {
namespace {

absl::Status OfAnotherEpoch(const GroupRank& group_rank, uint32_t epoch) {
  return absl::FailedPreconditionError(absl::StrFormat("group '%s' meets for plan epoch %d, and replica %d is of epoch %d",
                                                       group_rank.group, epoch, group_rank.rank, group_rank.epoch));
}

// "EPOCH SIZE KIND DEVICE_BYTES\n", the device, the secret.
std::string Serialized(const GroupRank& group_rank, const PeerInfo& own) {
  return absl::StrFormat("%d %d %s %d\n%s%s", group_rank.epoch, group_rank.size, own.kind, own.device.size(), own.device, own.secret);
}

absl::StatusOr<PeerInfo> ParseIntroduction(const GroupRank& group_rank, int from, const std::string& bytes) {
  const absl::Status malformed =
      absl::InvalidArgumentError(absl::StrFormat("replica %d of group '%s' introduced itself with something else", from, group_rank.group));
  const size_t line = bytes.find('\n');
  if (line == std::string::npos) return malformed;
  const std::vector<std::string> words = absl::StrSplit(bytes.substr(0, line), ' ');
  uint32_t epoch = 0;
  int size = 0;
  size_t device = 0;
  if (words.size() != 4 || !absl::SimpleAtoi(words[0], &epoch) || !absl::SimpleAtoi(words[1], &size) ||
      !absl::SimpleAtoi(words[3], &device) || device > bytes.size() - line - 1) {
    return malformed;
  }
  if (epoch != group_rank.epoch || size != group_rank.size) {
    return absl::FailedPreconditionError(
        absl::StrFormat("replica %d of group '%s' is one of %d in plan epoch %d, and replica %d is one of %d in epoch %d", from,
                        group_rank.group, size, epoch, group_rank.rank, group_rank.size, group_rank.epoch));
  }
  return PeerInfo{.kind = words[2], .device = bytes.substr(line + 1, device), .secret = bytes.substr(line + 1 + device)};
}

}  // namespace

size_t LocalRendezvous::Meeting::missing() const { return static_cast<size_t>(std::count(brought.begin(), brought.end(), std::nullopt)); }

absl::Status LocalRendezvous::Enter(const GroupRank& group_rank, std::string bytes) {
  Meeting& meeting = meetings_[group_rank.group];
  if (group_rank.epoch < meeting.epoch) return OfAnotherEpoch(group_rank, meeting.epoch);
  if (group_rank.epoch > meeting.epoch || meeting.brought.empty()) {
    meeting = {.epoch = group_rank.epoch, .brought = std::vector<std::optional<std::string>>(static_cast<size_t>(group_rank.size))};
  }
  if (meeting.brought.size() != static_cast<size_t>(group_rank.size)) {
    return absl::InvalidArgumentError(absl::StrFormat("%s: others say that there are %d", group_rank.ToString(), meeting.brought.size()));
  }
  std::optional<std::string>& own = meeting.brought[static_cast<size_t>(group_rank.rank)];
  if (own) return absl::InvalidArgumentError(absl::StrFormat("%s has come before", group_rank.ToString()));
  own = std::move(bytes);
  return absl::OkStatus();
}

absl::StatusOr<std::vector<std::string>> LocalRendezvous::Exchange(const GroupRank& group_rank, std::string bytes, absl::Duration timeout,
                                                                   std::stop_token stop) {
  FUSIONLLM_RETURN_IF_ERROR(CheckGroupRank(group_rank));
  base::UniqueLock lock(mutex_);
  FUSIONLLM_RETURN_IF_ERROR(Enter(group_rank, std::move(bytes)));
  changed_.notify_all();
  Meeting& meeting = meetings_[group_rank.group];
  changed_.wait_for(lock, stop, absl::ToChronoMilliseconds(timeout),
                    [&] { return meeting.epoch != group_rank.epoch || meeting.missing() == 0; });
  if (meeting.epoch != group_rank.epoch) return OfAnotherEpoch(group_rank, meeting.epoch);
  if (meeting.missing() == 0) {
    std::vector<std::string> all;
    for (const auto& brought : meeting.brought) all.push_back(*brought);
    return all;
  }
  std::vector<size_t> missing;
  for (size_t rank = 0; rank < meeting.brought.size(); ++rank) {
    if (!meeting.brought[rank]) missing.push_back(rank);
  }
  meeting.brought[static_cast<size_t>(group_rank.rank)].reset();  // so that those who come later do not count on it
  if (stop.stop_requested())
    return absl::CancelledError(absl::StrCat(group_rank.ToString(), " was stopped while it waited for the others"));
  return absl::UnavailableError(absl::StrFormat("%s waited %s for replica %s to come", group_rank.ToString(), absl::FormatDuration(timeout),
                                                absl::StrJoin(missing, ", ")));
}

absl::StatusOr<std::vector<PeerInfo>> ExchangePeerInfo(Rendezvous& rendezvous, const GroupRank& group_rank, const PeerInfo& own,
                                                       absl::Duration timeout, std::stop_token stop) {
  FUSIONLLM_RETURN_IF_ERROR(CheckGroupRank(group_rank));
  FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<std::string> brought,
                             rendezvous.Exchange(group_rank, Serialized(group_rank, own), timeout, std::move(stop)));
  if (brought.size() != static_cast<size_t>(group_rank.size)) {
    return absl::InvalidArgumentError(absl::StrFormat("%s met %d replicas", group_rank.ToString(), brought.size()));
  }
  std::vector<PeerInfo> all;
  std::map<std::string, int> replica_on;  // by device
  for (int rank = 0; rank < group_rank.size; ++rank) {
    FUSIONLLM_ASSIGN_OR_RETURN(PeerInfo one, ParseIntroduction(group_rank, rank, brought[static_cast<size_t>(rank)]));
    if (one.kind != own.kind) {
      return absl::FailedPreconditionError(absl::StrFormat("replica %d of group '%s' communicates by '%s', and replica %d by '%s'", rank,
                                                           group_rank.group, one.kind, group_rank.rank, own.kind));
    }
    const auto [other, free] = replica_on.emplace(one.device, rank);
    if (!free && !one.device.empty()) {
      return absl::FailedPreconditionError(
          absl::StrFormat("replicas %d and %d of group '%s' are both on %s: each replica of a stage needs a card of its own", other->second,
                          rank, group_rank.group, one.device));
    }
    all.push_back(std::move(one));
  }
  return all;
}

}  // namespace fusionllm::collective
