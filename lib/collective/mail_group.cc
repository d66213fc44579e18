#include "lib/collective/mail_group.h"

#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "lib/base/status_macros.h"
#include "lib/collective/chain_communicator.h"
#include "lib/collective/mail_rendezvous.h"

namespace fusionllm::collective {
namespace {

constexpr char kNone[] = "none";

// "KIND\nDEVICE", or "none\nWHY".
struct Offer {
  std::string kind, about;
};

std::string Print(const MailGroupOptions& options) {
  return options.fast.has_value() ? absl::StrCat(options.fast->kind, "\n", options.fast->device)
                                  : absl::StrCat(kNone, "\n", options.why_not_fast);
}

Offer Parse(const std::string& bytes) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(bytes, absl::MaxSplits('\n', 1));
  return {parts.first, parts.second};
}

// Empty: all have the same way, each with a device of its own. All members come to the same answer, for they have the same offers.
std::string WhyNotFast(const std::vector<std::string>& offers) {
  const std::string& kind = Parse(offers[0]).kind;
  std::map<std::string, size_t> replica_on;  // by device
  for (size_t rank = 0; rank < offers.size(); ++rank) {
    const Offer offer = Parse(offers[rank]);
    if (offer.kind == kNone) return absl::StrFormat("replica %d: %s", rank, offer.about);
    if (offer.kind != kind) return absl::StrFormat("replica 0 communicates by '%s', and replica %d by '%s'", kind, rank, offer.kind);
    const auto [other, free] = replica_on.emplace(offer.about, rank);
    if (!free) return absl::StrFormat("replicas %d and %d are both on %s", other->second, rank, offer.about);
  }
  return "";
}

}  // namespace

absl::StatusOr<std::unique_ptr<Communicator>> JoinByMail(const Membership& member, tensor::Memory& memory, Mail& mail,
                                                         const MailGroupOptions& options, std::stop_token stop, std::string* account) {
  MailRendezvous rendezvous(mail);
  FUSIONLLM_ASSIGN_OR_RETURN(const std::vector<std::string> offers,
                             rendezvous.Exchange(member, Print(options), options.patience.to_meet, stop));
  const std::string why_not = WhyNotFast(offers);
  if (account != nullptr) {
    *account = why_not.empty() ? absl::StrCat(member.ToString(), " communicates by ", options.fast->kind)
                               : absl::StrCat(member.ToString(), " communicates by messages (", why_not, ")");
  }
  if (why_not.empty()) return options.fast->join(rendezvous, std::move(stop));
  ChainOptions chain{.patience = options.patience, .chain = options.chain};
  if (options.letter_bytes > 0) chain.letter_bytes = options.letter_bytes;
  return MakeChain(member, memory, mail, std::move(chain));
}

}  // namespace fusionllm::collective
