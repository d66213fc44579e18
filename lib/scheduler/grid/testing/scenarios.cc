#include "lib/scheduler/grid/testing/scenarios.h"

#include <map>
#include <utility>

#include "lib/scheduler/grid/rng.h"

namespace fusionllm::scheduler::grid {
namespace {

struct CityLink {
  const char *a, *b;
  double delay_ms, bandwidth_gbps;
};

// clang-format off
constexpr CityLink kCityLinks[] = {
    {"Oregon", "Virginia", 67, 0.79},
    {"Oregon", "Ohio", 49, 1.1},
    {"Oregon", "Tokyo", 96, 0.523},
    {"Oregon", "Seoul", 124, 0.46},
    {"Oregon", "Singapore", 163, 0.341},
    {"Oregon", "Sydney", 139, 0.36},
    {"Oregon", "London", 136, 0.42},
    {"Oregon", "Frankfurt", 143, 0.404},
    {"Oregon", "Ireland", 124, 0.482},
    {"Virginia", "Ohio", 11, 1.12},
    {"Virginia", "Tokyo", 143, 0.524},
    {"Virginia", "Seoul", 172, 0.5},
    {"Virginia", "Singapore", 230, 0.364},
    {"Virginia", "Sydney", 197, 0.383},
    {"Virginia", "London", 76, 1.16},
    {"Virginia", "Frankfurt", 90, 1.02},
    {"Virginia", "Ireland", 67, 1.05},
    {"Ohio", "Tokyo", 130, 0.694},
    {"Ohio", "Seoul", 159, 0.529},
    {"Ohio", "Singapore", 197, 0.452},
    {"Ohio", "Sydney", 185, 0.484},
    {"Ohio", "London", 86, 1.05},
    {"Ohio", "Frankfurt", 99, 0.799},
    {"Ohio", "Ireland", 77, 1.14},
    {"Tokyo", "Seoul", 34, 1.1},
    {"Tokyo", "Singapore", 73, 1.01},
    {"Tokyo", "Sydney", 100, 0.761},
    {"Tokyo", "London", 210, 0.366},
    {"Tokyo", "Frankfurt", 223, 0.36},
    {"Tokyo", "Ireland", 199, 0.465},
    {"Seoul", "Singapore", 74, 1.14},
    {"Seoul", "Sydney", 148, 0.58},
    {"Seoul", "London", 238, 0.342},
    {"Seoul", "Frankfurt", 235, 0.358},
    {"Seoul", "Ireland", 228, 0.335},
    {"Singapore", "Sydney", 92, 0.816},
    {"Singapore", "London", 169, 0.5},
    {"Singapore", "Frankfurt", 155, 0.535},
    {"Singapore", "Ireland", 179, 0.492},
    {"Sydney", "London", 262, 0.326},
    {"Sydney", "Frankfurt", 265, 0.328},
    {"Sydney", "Ireland", 254, 0.344},
    {"London", "Frankfurt", 14, 1.14},
    {"London", "Ireland", 12, 1.09},
    {"Frankfurt", "Ireland", 24, 1.08},
};
// clang-format on
constexpr double kInsideDelayMs = 5, kInsideGbps = 2;

struct Quality {
  double delay_ms, bandwidth_gbps;
};
using Links = std::map<std::pair<std::string, std::string>, Quality>;

Links Cities() {
  Links links;
  for (const CityLink& link : kCityLinks) {
    links[{link.a, link.b}] = links[{link.b, link.a}] = {link.delay_ms, link.bandwidth_gbps};
  }
  return links;
}

Network Build(std::string name, const std::vector<std::string>& places, Quality inside, const Links& between, Quality otherwise) {
  const size_t n = places.size();
  Network network{.name = std::move(name)};
  network.delay_ms.assign(n, std::vector<double>(n));
  network.bandwidth_gbps = network.delay_ms;
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) {
      const auto link = between.find({places[i], places[j]});
      const Quality quality = places[i] == places[j] ? inside : (link == between.end() ? otherwise : link->second);
      network.delay_ms[i][j] = quality.delay_ms;
      network.bandwidth_gbps[i][j] = quality.bandwidth_gbps;
    }
  }
  return network;
}

std::vector<std::string> Blocks(const std::vector<std::pair<std::string, int>>& blocks) {
  std::vector<std::string> places;
  for (const auto& [name, count] : blocks) places.insert(places.end(), count, name);
  return places;
}

std::vector<std::string> Numbered(const std::string& name, int blocks, int size) {
  std::vector<std::string> places;
  for (int block = 0; block < blocks; ++block) places.insert(places.end(), size, name + std::to_string(block));
  return places;
}

}  // namespace

Shape StudyShape() { return {.stages = 8, .pipelines = 8, .gradient_gib = 0.65, .activation_gib = 0.4712}; }

std::vector<Scenario> StudyScenarios() {
  // Eight machines of four devices and 32 of one.
  std::vector<std::string> spot = Numbered("four-", 8, 4);
  for (const std::string& single : Numbered("one-", 32, 1)) spot.push_back(single);
  // The study measured the links inside the country apart from those of the world.
  const auto both = [](const char* a, const char* b, Quality quality, Links& links) { links[{a, b}] = links[{b, a}] = quality; };
  Links country;
  both("Oregon", "Virginia", {67, 1.15}, country);
  both("California", "Virginia", {59, 1.05}, country);
  both("California", "Oregon", {12, 1.25}, country);
  both("California", "Ohio", {52, 1.02}, country);
  both("Ohio", "Virginia", {11, 1.12}, country);
  both("Ohio", "Oregon", {49, 1.1}, country);
  const Quality inside = {kInsideDelayMs, kInsideGbps};
  return {
      {Build("data centre", Numbered("machine-", 8, 8), {0, 100}, {}, {0, 3.125}), 3.440},
      {Build("spot instances", spot, {0, 100}, {}, {0, 1.25}), 31.632},
      {Build("two data centres", Blocks({{"Ohio", 32}, {"Virginia", 32}}), {1, 5}, {}, {11, 1.12}), 16.086},
      {Build("regional", Blocks({{"Virginia", 16}, {"Oregon", 16}, {"California", 16}, {"Ohio", 16}}), inside, country, inside), 34.799},
      {Build(
           "world-wide",
           Blocks(
               {{"Oregon", 8}, {"Virginia", 8}, {"Ohio", 8}, {"Tokyo", 8}, {"Seoul", 8}, {"London", 8}, {"Frankfurt", 8}, {"Ireland", 8}}),
           inside, Cities(), inside),
       49.216},
  };
}

Network IrregularNetwork(uint64_t seed) {
  std::vector<std::string> cities;
  for (const CityLink& link : kCityLinks) {
    if (cities.empty() || cities.back() != link.a) cities.emplace_back(link.a);
  }
  cities.emplace_back(std::rbegin(kCityLinks)->b);  // the only one that no link begins with
  Rng rng(seed);
  std::vector<std::string> tickets;  // a city with more tickets has more devices
  for (const std::string& city : cities) tickets.insert(tickets.end(), 1 + rng.Below(5), city);
  std::vector<std::string> places;
  for (int device = 0; device < 64; ++device) places.push_back(tickets[rng.Below(static_cast<int>(tickets.size()))]);
  const Quality inside = {kInsideDelayMs, kInsideGbps};
  return Build("irregular " + std::to_string(seed), places, inside, Cities(), inside);
}

}  // namespace fusionllm::scheduler::grid
