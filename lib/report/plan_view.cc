#include "lib/report/plan_view.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "lib/base/pluralize.h"
#include "lib/report/html.h"
#include "lib/report/number_format.h"

namespace fusionllm::report {
namespace {

std::string SiteOf(const Run& run, const std::string& device) {
  const auto found = run.site_of.find(device);
  return found == run.site_of.end() ? "" : found->second;
}

const plan::Link* FindLink(const plan::Plan& plan, const std::string& src, const std::string& dst) {
  const auto found =
      std::find_if(plan.links.begin(), plan.links.end(), [&](const plan::Link& link) { return link.src == src && link.dst == dst; });
  return found == plan.links.end() ? nullptr : &*found;
}

std::string CodecInShort(const std::string& codec, double ratio) {
  if (codec.empty()) return "";
  const bool squeezed = std::isfinite(ratio) && ratio > 1.005;
  return squeezed ? absl::StrCat(Escape(codec), " ", Ratio(ratio)) : Escape(codec);
}

std::string Hop(const Run& run, const std::string& from, const std::string& to) {
  const plan::Link* const forward = FindLink(*run.plan, from, to);
  const plan::Link* const backward = FindLink(*run.plan, to, from);
  const bool far = SiteOf(run, from) != SiteOf(run, to);
  std::string out = absl::StrCat("<div class=\"hop", far ? " far" : "", "\">");
  const plan::Link* const shown = forward != nullptr ? forward : backward;
  if (shown == nullptr) return out + "</div>";
  // A link's line stands for both ways when the plan lists it once.
  const int64_t bytes = shown->bytes + (forward != nullptr && backward != nullptr ? backward->bytes : 0);
  absl::StrAppend(&out, CodecInShort(shown->codec.substr(0, shown->codec.find('@')), shown->ratio), "<br>",
                  TrafficBytes(static_cast<double>(bytes)), "</div>");
  return out;
}

// Its stages in a row, with what travels between them.
std::string DrawPipelineOf(const Run& run, int replica) {
  std::string out = "<div class=\"plan\">\n";
  const std::vector<plan::Stage>& stages = run.plan->stages;
  for (size_t i = 0; i < stages.size(); ++i) {
    const plan::Stage& stage = stages[i];
    const plan::Replica rank = RankOf(stage, replica);
    const std::string device = DeviceOf(stage, replica);
    if (i > 0) absl::StrAppend(&out, Hop(run, DeviceOf(stages[i - 1], replica), device), "\n");
    const std::string site = SiteOf(run, device);
    absl::StrAppend(&out, "<div class=\"stage\"><i class=\"bg", i % 8, "\"></i><div><b>", Escape(device), "</b><small>stage ", stage.index,
                    site.empty() ? "" : absl::StrCat(" in ", Escape(site)), "</small>",
                    base::Pluralize(static_cast<int64_t>(stage.ops.size()), "op"), "<small>", Escape(SummarizeOps(stage.ops)), "</small>",
                    Seconds(rank.compute_seconds), " compute<br>", MemoryBytes(static_cast<double>(rank.memory_bytes)), "</div></div>\n");
  }
  return out + "</div>\n";
}

std::string Bar(double share, int colour) {
  const double width = std::isfinite(share) ? std::clamp(share, 0.0, 1.0) * 100 : 0;
  return absl::StrCat("<span class=\"bar\"><i class=\"bg", colour % 8, "\" style=\"width:", Coordinate(width), "%\"></i></span>",
                      Percent(share));
}

std::string ErrorText(const LinkTotal& link) {
  return absl::StrCat(Percent(link.relative_error), " <span class=\"soft\">(cosine ", absl::StrFormat("%.3g", link.cosine), ")</span>");
}

}  // namespace

std::string SummarizeOps(const std::vector<std::string>& ops) {
  constexpr size_t kMaxShown = 6;
  std::vector<std::string> heads;
  for (const std::string& op : ops) {
    const size_t dot = op.find('.');
    const size_t second = dot == std::string::npos ? dot : op.find('.', dot + 1);
    const std::string head = op.substr(0, second);
    if (std::find(heads.begin(), heads.end(), head) == heads.end()) heads.push_back(head);
    if (heads.size() > kMaxShown) {
      heads.back() = "...";
      break;
    }
  }
  return absl::StrJoin(heads, ", ");
}

std::string DrawPlan(const Run& run) {
  if (!run.plan || run.plan->stages.empty()) return "";
  const plan::Plan& plan = *run.plan;
  std::string out;
  for (int replica = 0; replica < PipelinesOf(plan); ++replica) {
    if (plan.replicas > 1) {
      absl::StrAppend(&out, "<p class=\"pipeline\"><b>Replica ", replica, "</b> takes ", MicroBatchesOf(plan, replica), " of the ",
                      base::Pluralize(plan.micro_batches, "micro-batch", "micro-batches"), "</p>\n");
    }
    absl::StrAppend(&out, DrawPipelineOf(run, replica));
  }
  return out;
}

std::string StagesTable(const Run& run) {
  using Rank = std::pair<int, int>;  // replica and stage
  std::map<Rank, const StageTotal*> measured;
  std::map<Rank, const plan::Stage*> planned;
  if (run.summary) {
    for (const StageTotal& stage : run.summary->stages) measured[{stage.replica, stage.index}] = &stage;
  }
  if (run.plan) {
    for (const plan::Stage& stage : run.plan->stages) {
      for (int replica = 0; replica < PipelinesOf(*run.plan); ++replica) planned[{replica, stage.index}] = &stage;
    }
  }
  std::set<Rank> ranks;
  for (const auto& [rank, stage] : measured) ranks.insert(rank);
  for (const auto& [rank, stage] : planned) ranks.insert(rank);
  if (ranks.empty()) return "";
  const bool several = ranks.rbegin()->first > 0;
  std::vector<std::vector<std::string>> rows = {
      {">stage", "device", ">ops", ">compute, predicted", "busy, measured", ">memory, predicted", ">measured peak"}};
  if (several) rows[0].insert(rows[0].begin(), ">replica");
  for (const Rank& rank : ranks) {
    const auto& [replica, index] = rank;
    const plan::Stage* const plan = planned.contains(rank) ? planned[rank] : nullptr;
    const StageTotal* const total = measured.contains(rank) ? measured[rank] : nullptr;
    const bool by_total = plan == nullptr || (several && total != nullptr);
    const int64_t predicted = by_total ? total->predicted_memory_bytes : RankOf(*plan, replica).memory_bytes;
    std::vector<std::string> row = {absl::StrCat(index),
                                    Escape(total != nullptr ? total->device : DeviceOf(*plan, replica)),
                                    plan != nullptr ? absl::StrCat(plan->ops.size()) : "–",
                                    plan != nullptr ? Seconds(RankOf(*plan, replica).compute_seconds) : "–",
                                    total != nullptr ? Bar(total->busy_ratio, index) : "–",
                                    MemoryBytes(static_cast<double>(predicted)),
                                    total != nullptr ? MemoryBytes(static_cast<double>(total->peak_memory_bytes)) : "–"};
    if (several) row.insert(row.begin(), absl::StrCat(replica));
    rows.push_back(std::move(row));
  }
  return Table(rows);
}

std::string LinksTable(const Run& run) {
  std::map<std::pair<std::string, std::string>, std::pair<const plan::Link*, const LinkTotal*>> links;
  if (run.plan) {
    for (const plan::Link& link : run.plan->links) links[{link.src, link.dst}].first = &link;
  }
  if (run.summary) {
    for (const LinkTotal& link : run.summary->links) {
      // Every pair of devices is connected; those that said nothing are no news.
      if (link.bytes > 0 || links.contains({link.src, link.dst})) links[{link.src, link.dst}].second = &link;
    }
  }
  // Between replicas go gradients alone, at full size, and no link of the plan speaks of them.
  std::map<std::pair<std::string, std::string>, int64_t> chains;
  if (run.plan) chains = ChainBytes(*run.plan);
  for (const auto& [ends, bytes] : chains) links[ends];
  if (links.empty()) return "";
  // Steps of earlier starts in the folder are shown; their bytes were counted then.
  const double steps = StepsSent(run);
  const auto any = [&](const auto& what) {
    return std::any_of(links.begin(), links.end(),
                       [&](const auto& link) { return link.second.second != nullptr && what(*link.second.second); });
  };
  const bool evaluated = any([](const LinkTotal& link) { return link.evaluation_bytes.value_or(0) > 0; });
  const bool compared = any([](const LinkTotal& link) { return link.compared_messages > 0; });
  std::vector<std::vector<std::string>> rows = {
      {"from", "to", "codec", ">a step, predicted", ">a step, measured", ">since the start", ">time, predicted", ">bandwidth, measured"}};
  if (evaluated) rows[0].insert(rows[0].begin() + 6, ">of it evaluations");
  if (compared) rows[0].push_back(">error of messages");
  for (const auto& [ends, link] : links) {
    const auto& [plan, total] = link;
    const std::string from = SiteOf(run, ends.first), to = SiteOf(run, ends.second);
    const auto chain = chains.find(ends);
    const bool sums = plan == nullptr && chain != chains.end();
    const std::string codec = total != nullptr  ? CodecInShort(total->codec, total->ratio)
                              : plan != nullptr ? CodecInShort(plan->codec, plan->ratio)
                                                : "fp32";
    const auto bytes = [](double value) { return TrafficBytes(std::round(value)); };
    const std::string predicted = plan != nullptr ? bytes(static_cast<double>(plan->bytes))
                                  : sums          ? bytes(static_cast<double>(chain->second))
                                                  : "–";
    const int64_t evaluation = total != nullptr ? total->evaluation_bytes.value_or(0) : 0;
    rows.push_back({Escape(ends.first),
                    absl::StrCat(Escape(ends.second), from != to ? " <span class=\"soft\">(between sites)</span>" : "",
                                 sums ? " <span class=\"soft\">(sums of gradients)</span>" : ""),
                    codec, predicted, total != nullptr ? bytes(static_cast<double>(total->bytes - evaluation) / steps) : "–",
                    total != nullptr ? bytes(static_cast<double>(total->bytes)) : "–", plan != nullptr ? Seconds(plan->seconds) : "–",
                    total != nullptr && total->bytes_per_s > 0 ? TrafficBytes(total->bytes_per_s) + "/s" : "–"});
    std::vector<std::string>& row = rows.back();
    if (evaluated) row.insert(row.begin() + 6, total != nullptr ? bytes(static_cast<double>(evaluation)) : "–");
    if (compared) row.push_back(total != nullptr && total->compared_messages > 0 ? ErrorText(*total) : "–");
  }
  return Table(rows);
}

}  // namespace fusionllm::report
