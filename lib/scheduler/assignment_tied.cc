// Evaluator: what stages that share a parameter send one another at the end of a step, and what it travels as.
#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "lib/scheduler/assignment.h"
#include "lib/scheduler/text_format.h"

namespace fusionllm::scheduler {
namespace {

// A lossier codec must make this much of a step's time to an equal loss, or the less aggressive one stays: the estimates are not that good.
constexpr double kWorthwhile = 0.02;

}  // namespace

void Evaluator::FindTied() {
  tied_.clear();
  tied_choices_.clear();
  for (size_t t = 0; t < problem_.tied().size(); ++t) {
    TiedExchange exchange{.parameter = problem_.request().tied[t].name, .bytes = problem_.request().tied[t].bytes};
    for (int position : problem_.tied()[t]) {
      if (exchange.stages.empty() || exchange.stages.back() != stage_of_[position]) exchange.stages.push_back(stage_of_[position]);
    }
    if (exchange.stages.size() < 2) continue;
    tied_.push_back(std::move(exchange));
    tied_choices_.push_back({.parameter = t});
    SetTiedCodec(tied_.size() - 1, 0);
  }
}

void Evaluator::SetTiedCodec(size_t exchange, size_t codec) {
  TiedExchange& tied = tied_[exchange];
  TiedChoice& choice = tied_choices_[exchange];
  const TiedParameter& parameter = problem_.request().tied[choice.parameter];
  choice.codec = codec;
  tied.sent_bytes.assign(tied.stages.size(), 0);
  tied.codec = parameter.codecs.empty() ? "fp32" : parameter.codecs[codec].codec;
  tied.loss_cost = parameter.codecs.empty() ? 0 : parameter.codecs[codec].loss_cost;
  for (size_t use = 0; use < parameter.ops.size(); ++use) {
    const int stage = stage_of_[problem_.position_of(parameter.ops[use])];
    const auto sender = std::find(tied.stages.begin(), tied.stages.end(), stage) - tied.stages.begin();
    tied.sent_bytes[sender] += parameter.codecs.empty() ? parameter.bytes : parameter.codecs[codec].bytes[use];
  }
}

// Of the longest of its messages, each alone on its link.
double Evaluator::ExchangeSeconds(const TiedExchange& exchange) const {
  double longest_s = 0;
  for (size_t from = 0; from < exchange.stages.size(); ++from) {
    for (const int to : exchange.stages) {
      if (to == exchange.stages[from]) continue;
      longest_s = std::max(longest_s, ControlSeconds(exchange.stages[from], to, exchange.sent_bytes[from]));
    }
  }
  return longest_s;
}

// Each exchange travels by the least aggressive codec that trains about as fast to an equal loss as any: what an exchange takes comes on
// top of a step, since it begins when a stage's last gradient is there.
void Evaluator::ChooseTiedCodecs(Evaluation& evaluation) {
  if (tied_.empty()) return;
  double step_s = -1;
  for (size_t e = 0; e < tied_.size(); ++e) {
    const std::vector<TiedCodec>& codecs = problem_.request().tied[tied_choices_[e].parameter].codecs;
    if (kept_ != nullptr) {
      for (const TiedExchange& kept : kept_->tied) {
        for (size_t c = 0; c < codecs.size() && kept.parameter == tied_[e].parameter; ++c) {
          if (codecs[c].codec == kept.codec) SetTiedCodec(e, c);
        }
      }
    } else if (codecs.size() > 1) {
      if (step_s < 0) step_s = MinSeconds();
      size_t chosen = tied_choices_[e].mildest;
      double min_s = 0;
      for (size_t c = tied_choices_[e].mildest; c < codecs.size(); ++c) {
        if (c > tied_choices_[e].mildest && evaluation.loss_cost + codecs[c].loss_cost > problem_.request().max_loss_cost) break;
        SetTiedCodec(e, c);
        const double cost_s = (step_s + ExchangeSeconds(tied_[e])) * (1 + kTimePerNat * (evaluation.loss_cost + codecs[c].loss_cost));
        if (c > tied_choices_[e].mildest && cost_s > min_s * (1 - kWorthwhile)) continue;
        chosen = c;
        min_s = cost_s;
      }
      SetTiedCodec(e, chosen);
    }
    evaluation.loss_cost += tied_[e].loss_cost;
  }
}

// Where a site would send too much: harder codecs for what stages share, all of them one after the other, before links are squeezed.
void Evaluator::CompressTied() {
  Evaluation unused;
  for (size_t e = 0; e < tied_.size(); ++e) {
    const size_t codecs = problem_.request().tied[tied_choices_[e].parameter].codecs.size();
    for (size_t c = 1; c < codecs && !EgressFits(unused); ++c) {
      SetTiedCodec(e, c);
      tied_choices_[e].mildest = c;
    }
  }
}

std::string Evaluator::WhyTiedCodec(size_t exchange) {
  const TiedChoice choice = tied_choices_[exchange];
  const TiedParameter& parameter = problem_.request().tied[choice.parameter];
  if (parameter.codecs.size() < 2) return parameter.codecs_why;
  const double seconds = ExchangeSeconds(tied_[exchange]);
  const auto with = [&](size_t codec) {
    SetTiedCodec(exchange, codec);
    const double other_s = ExchangeSeconds(tied_[exchange]);
    SetTiedCodec(exchange, choice.codec);
    return other_s;
  };
  if (choice.codec == 0) {
    const size_t next = choice.codec + 1;
    return absl::StrFormat("%s would not pay: it would take %s instead of %s", parameter.codecs[next].codec, DurationText(with(next)),
                           DurationText(seconds));
  }
  return absl::StrFormat(
      "%s takes %s instead of %s by %s%s", tied_[exchange].codec, DurationText(seconds), DurationText(with(0)), parameter.codecs[0].codec,
      choice.mildest > 0 ? ", so that no site sends more than maxEgressBytesPerStep" : ", and trains faster to an equal loss");
}

}  // namespace fusionllm::scheduler
