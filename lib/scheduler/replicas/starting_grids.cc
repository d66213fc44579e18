#include "lib/scheduler/replicas/starting_grids.h"

#include <algorithm>
#include <string>
#include <utility>

#include "lib/scheduler/grid/grid_search.h"
#include "lib/scheduler/replicas/all_reduce.h"

namespace fusionllm::scheduler::replicas {
namespace {

constexpr double kBytesOfGib = 1024.0 * 1024 * 1024;
constexpr double kBitsOfGigabit = 1e9 / 8;
// Enough to find communities; the simulator judges afterwards.
constexpr grid::FenceOptions kFenceOptions{.starts = 2, .evaluations = 2'000};

DeviceGrid ByStages(const std::vector<int>& devices, const GridShape& shape) {
  DeviceGrid out(shape.stages);
  for (int s = 0; s < shape.stages; ++s) out[s].assign(devices.begin() + s * shape.pipelines, devices.begin() + (s + 1) * shape.pipelines);
  return out;
}

DeviceGrid ByPipelines(const std::vector<int>& devices, const GridShape& shape) {
  DeviceGrid out(shape.stages, std::vector<int>(shape.pipelines));
  for (int d = 0; d < shape.pipelines; ++d) {
    for (int s = 0; s < shape.stages; ++s) out[s][d] = devices[d * shape.stages + s];
  }
  return out;
}

// Usable devices by site, in the order in which sites first appear, the fastest of a site first.
std::vector<std::vector<int>> Sites(const Problem& problem) {
  std::vector<std::string> names;
  std::vector<std::vector<int>> sites;
  for (const int device : problem.usable()) {
    const std::string& site = problem.request().devices[device].site;
    const size_t at = std::find(names.begin(), names.end(), site) - names.begin();
    if (at == names.size()) {
      names.push_back(site);
      sites.emplace_back();
    }
    sites[at].push_back(device);
  }
  for (std::vector<int>& site : sites) {
    std::stable_sort(site.begin(), site.end(), [&](int a, int b) { return WholeModelSeconds(problem, a) < WholeModelSeconds(problem, b); });
  }
  return sites;
}

// `count` groups of `size` devices one after another: whole groups of single sites while there are any, those of the most speed first,
// then of what is left site by site.
std::vector<int> WholeGroups(const Problem& problem, int count, int size) {
  struct Group {
    std::vector<int> devices;
    double speed = 0;
    size_t site = 0;
  };
  std::vector<Group> groups;
  std::vector<int> rest;
  const std::vector<std::vector<int>> sites = Sites(problem);
  for (size_t site = 0; site < sites.size(); ++site) {
    const size_t whole = sites[site].size() / size * size;
    for (size_t i = 0; i < whole; i += size) {
      Group group{.devices = {sites[site].begin() + i, sites[site].begin() + i + size}, .site = site};
      for (const int device : group.devices) group.speed += 1 / std::max(WholeModelSeconds(problem, device), 1e-12);
      groups.push_back(std::move(group));
    }
    rest.insert(rest.end(), sites[site].begin() + whole, sites[site].end());
  }
  std::stable_sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) { return a.speed > b.speed; });
  if (static_cast<int>(groups.size()) > count) groups.resize(count);
  std::stable_sort(groups.begin(), groups.end(), [](const Group& a, const Group& b) { return a.site < b.site; });
  std::vector<int> devices;
  for (const Group& group : groups) devices.insert(devices.end(), group.devices.begin(), group.devices.end());
  devices.insert(devices.end(), rest.begin(), rest.end());
  devices.resize(static_cast<size_t>(count) * size);
  return devices;
}

double MedianCutBytes(const Problem& problem) {
  std::vector<double> bytes;
  for (int p = problem.first_cut(); p < problem.positions(); ++p)
    bytes.push_back(static_cast<double>(problem.LossyBytesAt(p) + problem.LosslessBytesAt(p)));
  if (bytes.empty()) return 0;
  std::nth_element(bytes.begin(), bytes.begin() + static_cast<std::ptrdiff_t>(bytes.size() / 2), bytes.end());
  return bytes[bytes.size() / 2];
}

}  // namespace

double WholeModelSeconds(const Problem& problem, int device) {
  return problem.ForwardSeconds(0, problem.positions(), device) + problem.BackwardSeconds(0, problem.positions(), device);
}

std::vector<int> BySpeed(const Problem& problem) {
  std::vector<int> devices = problem.usable();
  std::stable_sort(devices.begin(), devices.end(),
                   [&](int a, int b) { return WholeModelSeconds(problem, a) < WholeModelSeconds(problem, b); });
  return devices;
}

std::vector<DeviceGrid> SimpleGrids(const Problem& problem, const GridShape& shape) {
  const std::vector<int> fastest = BySpeed(problem);
  std::vector<int> roomiest = fastest;
  std::stable_sort(roomiest.begin(), roomiest.end(), [&](int a, int b) { return problem.UsableMemory(a) > problem.UsableMemory(b); });
  std::vector<DeviceGrid> grids;
  for (DeviceGrid grid : {ByPipelines(WholeGroups(problem, shape.pipelines, shape.stages), shape),
                          ByStages(WholeGroups(problem, shape.stages, shape.pipelines), shape), ByStages(fastest, shape),
                          ByPipelines(fastest, shape), ByStages(roomiest, shape)}) {
    if (std::find(grids.begin(), grids.end(), grid) == grids.end()) grids.push_back(std::move(grid));
  }
  return grids;
}

std::vector<DeviceGrid> FenceGrids(const Problem& problem, const GridShape& shape, uint64_t seed) {
  if (shape.stages < 2 || shape.pipelines < 2) return {};
  std::vector<int> devices = BySpeed(problem);
  devices.resize(static_cast<size_t>(shape.stages) * shape.pipelines);
  std::sort(devices.begin(), devices.end());
  const size_t count = devices.size();
  grid::Network network;
  network.delay_ms.assign(count, std::vector<double>(count, 0));
  network.bandwidth_gbps.assign(count, std::vector<double>(count, 0));
  for (size_t a = 0; a < count; ++a) {
    for (size_t b = 0; b < count; ++b) {
      if (a == b) continue;
      const DirectedLink link = problem.link(devices[a], devices[b]);
      network.delay_ms[a][b] = link.latency_s * 1e3;
      network.bandwidth_gbps[a][b] = link.bytes_per_s / kBitsOfGigabit;
    }
  }
  const double messages = static_cast<double>(problem.request().micro_batches) / shape.pipelines;
  const double gradients = static_cast<double>(GradientBytes(problem, 0, problem.positions())) / shape.stages;
  const auto created = grid::GridProblem::Create(network, {.stages = shape.stages,
                                                           .pipelines = shape.pipelines,
                                                           .gradient_gib = gradients / kBytesOfGib,
                                                           .activation_gib = messages * MedianCutBytes(problem) / kBytesOfGib});
  if (!created.ok()) return {};
  DeviceGrid out = grid::FenceGrid(*created, seed, kFenceOptions).grid;
  for (std::vector<int>& row : out) {
    for (int& device : row) device = devices[device];
  }
  // Stages may as well be passed the other way round.
  DeviceGrid reversed(out.rbegin(), out.rend());
  return {std::move(out), std::move(reversed)};
}

}  // namespace fusionllm::scheduler::replicas
