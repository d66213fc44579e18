#include "lib/scheduler/testing/requests.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

namespace fusionllm::scheduler::testing {
namespace {

OpNode Placeholder(const std::string& name) { return {.name = name, .placeholder = true}; }

}  // namespace

PlanRequest Chain(const ChainSpec& spec, int micro_batches) {
  PlanRequest request;
  request.micro_batches = micro_batches;
  request.ops = {Placeholder("tokens"), Placeholder("labels")};
  request.values.push_back({.name = "tokens", .producer = 0, .consumers = {2}, .kept_by = {2}, .bytes = 1'000, .lossless_only = true});
  for (int i = 0; i < spec.ops; ++i) {
    const int op = 2 + i;
    const bool last = i + 1 == spec.ops;
    request.ops.push_back({.name = last ? "loss" : "op" + std::to_string(i),
                           .flops = 3 * spec.op_s * 1e9,
                           .forward_s = {spec.op_s},
                           .backward_s = {2 * spec.op_s},
                           .parameter_bytes = spec.parameter_bytes,
                           .gradient_bytes = spec.parameter_bytes,
                           .optimizer_bytes = 2 * spec.parameter_bytes});
    if (!last) {
      request.values.push_back({.name = request.ops.back().name,
                                .producer = op,
                                .consumers = {op + 1},
                                .kept_by = {op + 1},
                                .bytes = spec.cut_bytes,
                                .differentiable = true});
    }
  }
  const int loss = static_cast<int>(request.ops.size()) - 1;
  request.values.push_back(
      {.name = "labels", .producer = 1, .consumers = {loss}, .kept_by = {loss}, .bytes = 1'000, .lossless_only = true});
  return request;
}

void AddDevice(PlanRequest& request, const std::string& site, double time_scale) {
  int in_site = 0;
  for (const Device& device : request.devices) in_site += device.site == site;
  request.devices.push_back(
      {.name = site + "-" + std::to_string(in_site), .site = site, .time_scale = time_scale, .memory_bytes = int64_t{16} << 30});
}

void LinkSites(PlanRequest& request, double inside_bytes_per_s, double inside_latency_s, double across_bytes_per_s,
               double across_latency_s) {
  std::map<std::pair<std::string, std::string>, int> resources;
  for (size_t a = 0; a < request.devices.size(); ++a) {
    for (size_t b = 0; b < request.devices.size(); ++b) {
      if (a == b) continue;
      const std::string &from = request.devices[a].site, &to = request.devices[b].site;
      Link link{.src = static_cast<int>(a), .dst = static_cast<int>(b), .latency_s = inside_latency_s, .bytes_per_s = inside_bytes_per_s};
      if (from != to) {
        const auto [found, added] = resources.insert({{from, to}, static_cast<int>(request.resources.size())});
        if (added) request.resources.push_back({.name = from + "->" + to, .bytes_per_s = across_bytes_per_s});
        link.latency_s = across_latency_s;
        link.bytes_per_s = across_bytes_per_s;
        link.resources = {found->second};
      }
      request.links.push_back(link);
    }
  }
}

void JoinSites(PlanRequest& request, double inside_bytes_per_s, double inside_latency_s, double across_bytes_per_s,
               double across_latency_s) {
  for (const Device& device : request.devices) {
    if (std::find(request.sites.begin(), request.sites.end(), device.site) == request.sites.end()) request.sites.push_back(device.site);
  }
  for (int from = 0; from < static_cast<int>(request.sites.size()); ++from) {
    for (int to = 0; to < static_cast<int>(request.sites.size()); ++to) {
      SiteLink link{.src = {.site = from}, .dst = {.site = to}, .latency_s = inside_latency_s, .bytes_per_s = inside_bytes_per_s};
      if (from != to) {
        link.latency_s = across_latency_s;
        link.bytes_per_s = across_bytes_per_s;
        link.resources = {static_cast<int>(request.resources.size())};
        request.resources.push_back({.name = request.sites[from] + "->" + request.sites[to], .bytes_per_s = across_bytes_per_s});
      }
      request.site_links.push_back(std::move(link));
    }
  }
}

PlanRequest Transformer(const TransformerSpec& spec, int micro_batches) {
  PlanRequest request;
  request.micro_batches = micro_batches;
  request.ops = {Placeholder("tokens"), Placeholder("labels")};
  const int64_t bytes = spec.activation_bytes;
  const auto op = [&](const std::string& name, double times, int64_t parameters) {
    request.ops.push_back({.name = name,
                           .flops = 3 * times * spec.op_s * 1e9,
                           .forward_s = {times * spec.op_s},
                           .backward_s = {2 * times * spec.op_s},
                           .parameter_bytes = parameters,
                           .gradient_bytes = parameters,
                           .optimizer_bytes = 2 * parameters});
    return static_cast<int>(request.ops.size()) - 1;
  };
  const auto value = [&](int producer, const std::vector<int>& readers, int64_t size, bool differentiable) {
    request.values.push_back({.name = request.ops[producer].name,
                              .producer = producer,
                              .consumers = readers,
                              .kept_by = readers,
                              .bytes = size,
                              .differentiable = differentiable,
                              .lossless_only = !differentiable});
  };
  int residual = op("embedding", 1, 20 * bytes);
  value(0, {residual}, 1'000, false);
  for (int layer = 0; layer < spec.layers; ++layer) {
    const std::string in = "h" + std::to_string(layer) + ".";
    const int norm = op(in + "ln_1", 0.1, 1'000), qkv = op(in + "qkv", 3, 3 * bytes), attention = op(in + "attn", 1, 0);
    const int projection = op(in + "proj", 1, bytes);
    value(residual, {norm, projection}, bytes, true);
    value(norm, {qkv}, bytes, true);
    value(qkv, {attention}, 3 * bytes, true);
    value(attention, {projection}, bytes, true);
    const int second = op(in + "ln_2", 0.1, 1'000), up = op(in + "up", 4, 4 * bytes), gelu = op(in + "gelu", 0.3, 0);
    const int down = op(in + "down", 4, 4 * bytes);
    value(projection, {second, down}, bytes, true);
    value(second, {up}, bytes, true);
    value(up, {gelu}, 4 * bytes, true);
    value(gelu, {down}, 4 * bytes, true);
    residual = down;
  }
  const int loss = op("loss", 5, 20 * bytes);
  value(residual, {loss}, bytes, true);
  value(1, {loss}, 1'000, false);
  return request;
}

void AddCities(PlanRequest& request, uint64_t seed, int devices, int per_city, int64_t memory_bytes) {
  std::mt19937_64 generator(seed);
  const auto real = [&](double low, double high) { return low + (high - low) * (static_cast<double>(generator() >> 11) * 0x1p-53); };
  int left = 0;  // devices to come of the last city
  for (int d = 0; d < devices; ++d, --left) {
    if (left == 0) {
      left = 1 + static_cast<int>(generator() % static_cast<uint64_t>(2 * per_city - 1));
      request.sites.push_back("city" + std::to_string(request.sites.size()));
    }
    request.devices.push_back(
        {.name = "d" + std::to_string(d), .site = request.sites.back(), .time_scale = real(1, 4), .memory_bytes = memory_bytes});
  }
  std::vector<std::pair<double, double>> places;
  for (size_t city = 0; city < request.sites.size(); ++city) places.emplace_back(real(0, 1), real(0, 1));
  for (int from = 0; from < static_cast<int>(places.size()); ++from) {
    for (int to = 0; to < static_cast<int>(places.size()); ++to) {
      SiteLink link{.src = {.site = from}, .dst = {.site = to}, .latency_s = 1e-4, .bytes_per_s = real(1e8, 1e9)};
      if (from != to) {
        const double distance = std::hypot(places[from].first - places[to].first, places[from].second - places[to].second);
        link.latency_s = 0.002 + 0.1 * distance;
        link.bytes_per_s = 1.2e8 / (1 + 10 * distance) * real(0.3, 1);
        link.resources = {static_cast<int>(request.resources.size())};
        request.resources.push_back({.name = request.sites[from] + "->" + request.sites[to], .bytes_per_s = link.bytes_per_s});
      }
      request.site_links.push_back(std::move(link));
    }
  }
}

void AddBlocks(PlanRequest& request, uint64_t seed) {
  std::mt19937_64 generator(seed);
  int block = 0, left = 0;
  for (OpNode& op : request.ops) {
    if (left-- == 0) {
      ++block;
      left = static_cast<int>(generator() % 5);
    }
    op.block = block - 1;
    op.runs_again = generator() % 4 != 0;
  }
  // What runs again has what it reads: kept between blocks, or made again.
  for (size_t v = request.values.size(); v-- > 0;) {
    const ValueNode& value = request.values[v];
    OpNode& producer = request.ops[value.producer];
    const auto reads_again = [&](int op) { return request.ops[op].block == producer.block && request.ops[op].runs_again; };
    if (!value.kept_by.empty() || std::any_of(value.consumers.begin(), value.consumers.end(), reads_again)) producer.runs_again = true;
  }
}

PlanRequest RandomRequest(uint64_t seed, const RandomSpec& spec) {
  std::mt19937_64 generator(seed);
  const auto real = [&](double low, double high) { return low + (high - low) * (static_cast<double>(generator() >> 11) * 0x1p-53); };
  const auto whole = [&](int low, int high) { return low + static_cast<int>(generator() % static_cast<uint64_t>(high - low + 1)); };
  PlanRequest request;
  request.seed = seed;
  request.micro_batches = whole(1, spec.max_micro_batches);
  request.coordinates_steps = whole(0, 1) == 1;
  request.recompute = whole(0, 3) == 0;
  request.ops = {Placeholder("tokens"), Placeholder("labels")};
  const int ops = whole(2, spec.max_ops);
  for (int i = 0; i < ops; ++i) {
    const double forward_s = real(0.01, 0.3);
    request.ops.push_back({.name = "op" + std::to_string(i),
                           .flops = forward_s * 3e9,
                           .forward_s = {forward_s, forward_s * real(0.5, 2)},
                           .backward_s = {forward_s * 2, forward_s * real(1, 3)},
                           .update_s = {0.01, 0.01},
                           .parameter_bytes = whole(0, 1'000'000),
                           .gradient_bytes = whole(0, 1'000'000),
                           .optimizer_bytes = whole(0, 2'000'000),
                           .workspace_bytes = whole(0, 100'000)});
  }
  const int first = 2, last = first + ops - 1;
  request.values.push_back({.name = "tokens", .producer = 0, .consumers = {first}, .bytes = 500, .lossless_only = true});
  request.values.push_back({.name = "labels", .producer = 1, .consumers = {last}, .bytes = 500, .lossless_only = true});
  for (int op = first; op < last; ++op) {
    ValueNode value{
        .name = request.ops[op].name, .producer = op, .consumers = {op + 1}, .bytes = whole(1'000, 1'000'000), .differentiable = true};
    if (whole(0, 3) == 0) value.consumers.push_back(whole(op + 1, last));  // a skip connection
    value.kept_by = {value.consumers.back()};
    if (whole(0, 1) == 1) value.kept_by.push_back(op);
    request.values.push_back(value);
  }
  if (ops > 3 && whole(0, 2) == 0)
    request.tied.push_back({.name = "wte", .ops = {first, last}, .bytes = 200'000, .optimizer_bytes = 400'000});
  const int devices = whole(1, spec.max_devices);
  for (int d = 0; d < devices; ++d) {
    AddDevice(request, whole(0, 1) == 0 ? "paris" : "tokyo", real(0.5, 3));
    request.devices.back().cost_class = whole(0, 1);
    if (spec.tight_memory) request.devices.back().memory_bytes = whole(2'000'000, 5'000'000 * ops);
  }
  LinkSites(request, 1e8, 1e-4, real(5e5, 2e7), real(0.001, 0.2));
  for (Link& link : request.links) link.bytes_per_s *= real(0.5, 1);
  return request;
}

std::map<std::string, int64_t> EgressOf(const PlanRequest& request, const PlannedPipeline& plan) {
  std::map<std::string, int64_t> egress;
  const auto site = [&](int stage) { return request.devices[plan.stages[stage].devices[0]].site; };
  for (const PlannedLink& link : plan.links) {
    if (site(link.src_stage) == site(link.dst_stage)) continue;
    egress[site(link.src_stage)] += link.forward_wire_bytes * plan.micro_batches;
    egress[site(link.dst_stage)] += link.backward_wire_bytes * plan.micro_batches;
  }
  return egress;
}

Assignment AssignmentOf(const PlannedPipeline& plan) {
  Assignment assignment;
  int begin = 0;
  for (const PlannedStage& stage : plan.stages) {
    assignment.begins.push_back(begin);
    assignment.devices.push_back(stage.devices[0]);
    begin += static_cast<int>(stage.ops.size());
  }
  return assignment;
}

}  // namespace fusionllm::scheduler::testing
