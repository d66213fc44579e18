#include "lib/collective/channel_group.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "lib/base/printable_text.h"
#include "lib/base/status_macros.h"
#include "lib/base/truncate_utf8.h"
#include "lib/collective/chain_communicator.h"
#include "lib/collective/channel_rendezvous.h"

namespace fusionllm::collective {
namespace {

constexpr char kNone[] = "none";

// "KIND\nDEVICE", or "none\nWHY".
struct Offer {
  std::string kind, about;
};

std::string Print(const ChannelGroupOptions& options) {
  return options.fast.has_value() ? absl::StrCat(options.fast->kind, "\n", options.fast->device)
                                  : absl::StrCat(kNone, "\n", options.why_not_fast);
}

// Of what another process says as much as belongs into a log.
std::string Quoted(const std::string& text) {
  constexpr size_t kMaxQuotedBytes = 512;
  return base::PrintableText(base::TruncateUtf8(text, kMaxQuotedBytes));
}

Offer ParseOffer(const std::string& bytes) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(bytes, absl::MaxSplits('\n', 1));
  return {Quoted(parts.first), Quoted(parts.second)};
}

// Empty: all have the same way, each with a device of its own. All ranks come to the same answer, for they have the same offers.
std::string WhyNotFast(const std::vector<std::string>& offers) {
  const std::string& kind = ParseOffer(offers[0]).kind;
  std::map<std::string, size_t> replica_on;  // by device
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    const Offer offer = ParseOffer(offers[rank]);
    if (offer.kind == kNone) return absl::StrFormat("replica %d: %s", rank, offer.about);
    if (offer.kind != kind) return absl::StrFormat("replica 0 communicates by '%s', and replica %d by '%s'", kind, rank, offer.kind);
    const auto [other, free] = replica_on.emplace(offer.about, rank);
    if (!free) return absl::StrFormat("replicas %d and %d are both on %s", other->second, rank, offer.about);
  }
  return "";
}

// Series of meetings: joins may fail at different points.
enum : int { kOffers, kJoins, kOutcomes };

// Joins by the fast way; a sentence why not all could. All ranks come to the same answer.
absl::StatusOr<std::string> JoinFastTransport(const GroupRank& group_rank, PointToPointChannel& channel, const ChannelGroupOptions& options,
                                              const std::stop_token& stop, std::unique_ptr<Communicator>& joined) {
  ChannelRendezvous joins(channel, kJoins), outcomes(channel, kOutcomes);
  absl::StatusOr<std::unique_ptr<Communicator>> own = options.fast->join(joins, stop);
  // Others may notice that somebody is missing when their timeout ends.
  FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<std::string> all,
                             outcomes.Exchange(group_rank, own.ok() ? "" : own.status().ToString(), 2 * options.timeout.to_join, stop));
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (!all[rank].empty()) return absl::StrFormat("replica %d, by %s: %s", rank, options.fast->kind, Quoted(all[rank]));
  }
  FUSIONLLM_RETURN_IF_ERROR(own.status());
  joined = *std::move(own);
  return "";
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> JoinOverChannel(const GroupRank& group_rank, tensor::Memory& memory,
                                                              PointToPointChannel& channel, const ChannelGroupOptions& options,
                                                              std::stop_token stop, std::string* account) {
  ChannelRendezvous rendezvous(channel, kOffers);
  FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<std::string> offers,
                             rendezvous.Exchange(group_rank, Print(options), options.timeout.to_join, stop));
  std::string why_not = WhyNotFast(offers);
  std::unique_ptr<Communicator> joined;
  if (why_not.empty()) {
    FUSIONLLM_ASSIGN_OR_RETURN(why_not, JoinFastTransport(group_rank, channel, options, stop, joined));
  }
  if (account != nullptr) {
    *account = why_not.empty() ? absl::StrCat(group_rank.ToString(), " communicates by ", options.fast->kind)
                               : absl::StrCat(group_rank.ToString(), " communicates by messages (", why_not, ")");
  }
  if (joined != nullptr) return joined;
  ChainOptions chain{.timeout = options.timeout, .chain = options.chain};
  if (options.chunk_bytes > 0) chain.chunk_bytes = options.chunk_bytes;
  return MakeChain(group_rank, memory, channel, std::move(chain));
}

}  // namespace fusionllm::collective
