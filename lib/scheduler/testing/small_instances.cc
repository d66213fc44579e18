#include "lib/scheduler/testing/small_instances.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

#include "lib/scheduler/testing/requests.h"

namespace fusionllm::scheduler::testing {
namespace {

class Drawing {
 public:
  Drawing(uint64_t seed, const SmallSpec& spec) : generator_(seed), spec_(spec) {}

  SmallInstance Draw(uint64_t seed) {
    constexpr const char* kRegimes[] = {"compute", "links", "latency", "memory", "mixed"};
    instance_.regime = kRegimes[Whole(0, 4)];
    PlanRequest& request = instance_.request;
    request.seed = seed;
    request.micro_batches = Chance(0.15) ? 1 : Whole(2, Chance(0.3) ? 24 : 8);
    request.coordinates_steps = Chance(0.5);
    request.recompute = Chance(0.2);
    request.step_overhead_s = Chance(0.3) ? Real(0, 0.05) : 0;
    DrawOps();
    DrawValues();
    DrawDevices();
    DrawLinks();
    DrawConstraints();
    if (request.recompute && seed % 3 != 0) AddBlocks(request, seed);  // with draws of its own: the rest is as without
    return std::move(instance_);
  }

 private:
  double Real(double low, double high) { return low + (high - low) * (static_cast<double>(generator_() >> 11) * 0x1p-53); }
  double Scale(double low, double high) { return low * std::pow(high / low, Real(0, 1)); }  // all magnitudes alike
  int Whole(int low, int high) { return low + static_cast<int>(generator_() % static_cast<uint64_t>(high - low + 1)); }
  bool Chance(double share) { return Real(0, 1) < share; }
  bool Regime(const char* name) const { return instance_.regime == name; }

  // Ops of random length, or blocks of a few ops over and over as in deep networks.
  void DrawOps() {
    PlanRequest& request = instance_.request;
    request.ops = {{.name = "tokens", .placeholder = true}, {.name = "labels", .placeholder = true}};
    const int ops = Whole(spec_.min_ops, spec_.max_ops);
    const int period = Chance(0.5) ? Whole(1, 6) : ops;
    for (int i = 0; i < ops; ++i) {
      if (i >= period) {
        request.ops.push_back(request.ops[2 + i - period]);
        request.ops.back().name = "op" + std::to_string(i);
        continue;
      }
      const double forward_s = Scale(0.005, 0.2), backward = Real(1.5, 2.5);
      const double other_s = forward_s * Real(0.7, 1.6);
      request.ops.push_back({.name = "op" + std::to_string(i),
                             .flops = forward_s * 3e9,
                             .forward_s = {forward_s, other_s},
                             .backward_s = {forward_s * backward, other_s * backward},
                             .update_s = {0.002, 0.003},
                             .parameter_bytes = Whole(0, 1'000'000),
                             .gradient_bytes = Whole(0, 1'000'000),
                             .optimizer_bytes = Whole(0, 2'000'000),
                             .workspace_bytes = Whole(0, 300'000)});
    }
    if (ops > 3 && Chance(0.25)) {
      request.tied.push_back({.name = "wte", .ops = {2, ops + 1}, .bytes = 200'000, .optimizer_bytes = 400'000});
    }
  }

  void DrawValues() {
    PlanRequest& request = instance_.request;
    const int first = 2, last = static_cast<int>(request.ops.size()) - 1;
    request.values.push_back({.name = "tokens", .producer = 0, .consumers = {first}, .bytes = 500, .lossless_only = true});
    request.values.push_back({.name = "labels", .producer = 1, .consumers = {last}, .bytes = 500, .lossless_only = true});
    const bool even = Chance(0.5);  // all activations alike
    const int size = Whole(10'000, 1'000'000);
    for (int op = first; op < last; ++op) {
      ValueNode value{.name = request.ops[op].name,
                      .producer = op,
                      .consumers = {op + 1},
                      .bytes = even ? size : Whole(1'000, 1'000'000),
                      .differentiable = true};
      if (Chance(0.25)) value.consumers.push_back(std::min(last, op + Whole(2, 6)));  // a skip connection
      if (Chance(0.03)) value.consumers.push_back(last);
      value.kept_by = {value.consumers.back()};
      if (Chance(0.5)) value.kept_by.push_back(op);
      request.values.push_back(value);
    }
  }

  void DrawDevices() {
    PlanRequest& request = instance_.request;
    const int devices = Whole(spec_.min_devices, spec_.max_devices), sites = Whole(1, 3);
    constexpr const char* kSites[] = {"paris", "tokyo", "lima"};
    const bool alike = Chance(0.2);
    for (int d = 0; d < devices; ++d) {
      AddDevice(request, kSites[Whole(0, sites - 1)], alike ? 1 : Scale(0.5, 4));
      Device& device = request.devices.back();
      device.cost_class = alike ? 0 : Whole(0, 1);
      if (Regime("memory") || (Regime("mixed") && Chance(0.5))) device.memory_bytes = MemoryShare(devices);
    }
  }

  // About what a device must hold when all share the job, one to three micro-batches in flight.
  int64_t MemoryShare(int devices) {
    double job = 0;
    for (const OpNode& op : instance_.request.ops) {
      job += static_cast<double>(op.parameter_bytes + op.gradient_bytes + op.optimizer_bytes);
    }
    for (const ValueNode& value : instance_.request.values) job += static_cast<double>(value.bytes) * 3;
    return static_cast<int64_t>(job / devices * Scale(0.5, 4) + 1e6);
  }

  void DrawLinks() {
    PlanRequest& request = instance_.request;
    const bool links = Regime("links"), latency = Regime("latency"), mixed = Regime("mixed");
    const double inside = links || mixed ? Scale(3e6, 1e9) : 1e9;
    const double across = links ? Scale(2e5, 5e6) : (mixed ? Scale(5e5, 1e8) : 1e8);
    const double inside_latency_s = latency ? Scale(1e-3, 0.05) : 1e-4;
    const double across_latency_s = latency ? Scale(0.05, 1) : (mixed ? Scale(1e-3, 0.2) : 0.005);
    LinkSites(request, inside, inside_latency_s, across, across_latency_s);
    const bool skewed = Chance(0.7);
    for (Link& link : request.links) {
      if (skewed) link.bytes_per_s *= Scale(0.2, 1);
      if (skewed) link.latency_s *= Real(0.5, 1.5);
    }
    if (Chance(0.3)) AddUplinks(across);
    if (Chance(0.05) && request.devices.size() > 2) request.links.erase(request.links.begin() + Whole(0, 2));
    instance_.compressed = Chance(0.35);
    static const auto* const kLadder = new CodecLevelPolicy(
        {{"fp32", 1, 1, 0}, {"fp16", 2, 2, 1e-5}, {"int8", 4, 4, 2e-4}, {"topk", 16, 16, 1e-3}, {"topk", 64, 64, 4e-3}});
    if (instance_.compressed) request.codec_policy = kLadder;
  }

  // What leaves a site for wherever shares a line.
  void AddUplinks(double across) {
    PlanRequest& request = instance_.request;
    for (const char* site : {"paris", "tokyo", "lima"}) {
      const int uplink = static_cast<int>(request.resources.size());
      request.resources.push_back({.name = std::string(site) + " uplink", .bytes_per_s = across * Real(0.5, 1.5)});
      for (Link& link : request.links) {
        if (request.devices[link.src].site == site && request.devices[link.dst].site != site) link.resources.push_back(uplink);
      }
    }
  }

  void DrawConstraints() {
    PlanRequest& request = instance_.request;
    const int devices = static_cast<int>(request.devices.size()), ops = static_cast<int>(request.ops.size()) - 2;
    const auto any_device = [&] { return request.devices[Whole(0, devices - 1)].name; };
    if (Chance(0.25)) request.schedule = schedule::kGPipe;
    if (Chance(0.15)) request.max_in_flight = Whole(1, 6);
    if (Chance(0.12)) request.pins.push_back({"op" + std::to_string(Whole(0, ops - 1)), any_device()});
    if (Chance(0.08)) request.pins.push_back({"op0", any_device()});
    if (Chance(0.1)) request.first_device = any_device();
    if (devices > 2 && Chance(0.1)) request.exclude = {any_device()};
    if (devices > 2 && Chance(0.1)) request.devices[Whole(0, devices - 1)].spare = true;
    if (Chance(0.1)) request.use_all_devices = true;
    if (Chance(0.1)) request.stages = Whole(1, devices);
    if (Chance(0.1)) request.max_executors = Whole(1, devices);
  }

  std::mt19937_64 generator_;
  const SmallSpec spec_;
  SmallInstance instance_;
};

}  // namespace

SmallInstance DrawSmallInstance(uint64_t seed, const SmallSpec& spec) { return Drawing(seed, spec).Draw(seed); }

}  // namespace fusionllm::scheduler::testing
