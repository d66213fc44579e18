// Evaluator: what the sites send to one another in a step, and codecs that keep it within what the job allows.
#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "lib/scheduler/assignment.h"

namespace fusionllm::scheduler {
namespace {

// Of the bytes that a site may send, what its links are first asked to keep to, and then, since codecs come in steps; at last the
// strongest.
constexpr double kShares[] = {1, 0.5, 0.25, 0};
constexpr double kMinBudgetBytes = 1e-3;    // a policy wants positive rates
constexpr double kMinTargetSeconds = 1e-9;  // and jobs may cost nothing

}  // namespace

// Activations, gradients, gradients of tied parameters, reports and decisions; messages of all micro-batches.
std::map<absl::string_view, Evaluator::Egress> Evaluator::EgressBySite() const {
  const PlanRequest& request = problem_.request();
  std::map<absl::string_view, Egress> egress;
  const auto site_that_sends = [&](int from, int to) -> Egress* {
    const std::string &src = request.devices[stages_[from].device].site, &dst = request.devices[stages_[to].device].site;
    if (src == dst) return nullptr;
    Egress& site = egress[src];
    site.stage = from;
    return &site;
  };
  const auto send = [&](int from, int to, int64_t bytes) {
    Egress* const site = bytes > 0 ? site_that_sends(from, to) : nullptr;
    if (site != nullptr) site->bytes += bytes;
  };
  for (size_t l = 0; l < link_count_; ++l) {
    send(links_[l].src, links_[l].dst, codecs_[l].forward_wire_bytes * request.micro_batches);
    send(links_[l].dst, links_[l].src, codecs_[l].backward_wire_bytes * request.micro_batches);
    if (Egress* const site = site_that_sends(links_[l].src, links_[l].dst)) {
      site->encoded_bytes += (codecs_[l].forward_wire_bytes - traffic_[l].forward_lossless_bytes) * request.micro_batches;
      site->dense_bytes += traffic_[l].forward_bytes * request.micro_batches;
    }
    if (Egress* const site = traffic_[l].backward_bytes > 0 ? site_that_sends(links_[l].dst, links_[l].src) : nullptr) {
      site->encoded_bytes += codecs_[l].backward_wire_bytes * request.micro_batches;
      site->dense_bytes += traffic_[l].backward_bytes * request.micro_batches;
    }
  }
  for (const TiedExchange& exchange : tied_) {
    for (size_t i = 0; i < exchange.stages.size(); ++i) {
      for (const int to : exchange.stages) {
        if (to != exchange.stages[i]) send(exchange.stages[i], to, exchange.sent_bytes[i]);
      }
    }
  }
  for (int s = 1; request.coordinates_steps && s < static_cast<int>(stages_.size()); ++s) {
    send(s, 0, request.report_bytes);
    send(0, s, request.report_bytes);
  }
  return egress;
}

bool Evaluator::EgressFits(Evaluation& evaluation) const {
  if (!problem_.request().max_egress_bytes.has_value()) return true;
  for (const auto& [site, sent] : EgressBySite()) {
    if (sent.bytes <= *problem_.request().max_egress_bytes) continue;
    evaluation.feasibility = Evaluation::Feasibility::kEgressLimitExceeded;
    evaluation.stage = sent.stage;
    evaluation.needed_bytes = sent.bytes;
    return false;
  }
  return true;
}

// A policy picks the least aggressive codec whose bytes a link carries within the target. A site that would send too much has its links
// look as slow as makes the policy come down to its share of what may be sent, in proportion to what it would carry uncompressed.
void Evaluator::KeepWithinEgress(double target_s) {
  const PlanRequest& request = problem_.request();
  if (!request.max_egress_bytes.has_value()) return;
  CompressTied();
  std::map<absl::string_view, double> kept_of_dense;  // of sites that send too much: the share of their bytes that is left
  std::vector<LinkTraffic> slower;
  const double seconds = std::max(kMinTargetSeconds, target_s);
  for (const double share : kShares) {
    bool fits = true;
    for (const auto& [site, sent] : EgressBySite()) {
      if (sent.bytes > *request.max_egress_bytes) {
        fits = false;
      } else if (!kept_of_dense.contains(site)) {
        continue;
      }
      const auto allowed = static_cast<double>(*request.max_egress_bytes - (sent.bytes - sent.encoded_bytes));
      const auto dense = static_cast<double>(sent.dense_bytes);
      kept_of_dense[site] = dense > 0 ? std::max(0.0, allowed / dense) * share : 0;
    }
    if (fits) return;
    slower.assign(traffic_.begin(), traffic_.begin() + static_cast<int64_t>(link_count_));
    std::vector<char> slowed(link_count_, 0);
    for (size_t l = 0; l < link_count_; ++l) {
      const std::string &src = request.devices[stages_[links_[l].src].device].site,
                        &dst = request.devices[stages_[links_[l].dst].device].site;
      if (src == dst) continue;
      const auto slow_down = [&](const std::string& site, int64_t dense, int64_t lossless, double& rate) {
        const auto found = kept_of_dense.find(site);
        if (found == kept_of_dense.end() || dense == 0) return;
        const double budget = static_cast<double>(lossless) + static_cast<double>(dense) * found->second;
        slowed[l] = 1;
        rate = std::min(rate, std::max(kMinBudgetBytes, budget) / seconds);
      };
      slow_down(src, traffic_[l].forward_bytes, traffic_[l].forward_lossless_bytes, slower[l].forward_bytes_per_s);
      slow_down(dst, traffic_[l].backward_bytes, 0, slower[l].backward_bytes_per_s);
    }
    problem_.codec_policy().Choose({slower.data(), link_count_}, target_s, {codecs_.data(), link_count_});
    static const auto* const kWhy = new std::shared_ptr<const std::string>(
        std::make_shared<const std::string>("chosen so that no site sends more than maxEgressBytesPerStep"));
    for (size_t l = 0; l < link_count_; ++l) {
      if (slowed[l]) codecs_[l].reason = *kWhy;
    }
  }
}

}  // namespace fusionllm::scheduler
