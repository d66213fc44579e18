#include "lib/scheduler/replan/migration.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/string_view.h"

namespace fusionllm::scheduler::replan {
namespace {

constexpr int kGone = -1;     // the device is not in the snapshot any more
constexpr int kNowhere = -2;  // the op was in no stage

// By op of the request: the device that ran it.
std::vector<int> DeviceOfOps(const PlanRequest& request, const RunningPlan& running) {
  std::map<absl::string_view, int> device_of_name, device_of_op;
  for (size_t d = 0; d < request.devices.size(); ++d) device_of_name[request.devices[d].name] = static_cast<int>(d);
  for (const NamedStage& stage : running) {
    const auto found = device_of_name.find(stage.device);
    for (const std::string& op : stage.ops) device_of_op[op] = found == device_of_name.end() ? kGone : found->second;
  }
  std::vector<int> devices;
  for (const OpNode& op : request.ops) {
    const auto found = device_of_op.find(op.name);
    devices.push_back(found == device_of_op.end() ? kNowhere : found->second);
  }
  return devices;
}

// Seconds until all that is sent from `from` to `to` has arrived, everything starting at once.
class Transfers {
 public:
  Transfers(const Problem& problem, const Restore& restore) : problem_(problem), restore_(restore) {}

  void Add(int from, int to, int64_t bytes) {
    if (bytes == 0) return;
    const bool linked = from >= 0 && problem_.link(from, to).bytes_per_s > 0;
    (linked ? pairs_[{from, to}] : restored_[to]) += bytes;
  }

  double Seconds() const {
    double seconds = 0;
    std::map<int, double> crossing;  // by shared resource
    for (const auto& [pair, bytes] : pairs_) {
      const DirectedLink link = problem_.link(pair.first, pair.second);
      seconds = std::max(seconds, link.latency_s + static_cast<double>(bytes) / link.bytes_per_s);
      const double sent = static_cast<double>(bytes);
      problem_.links().ForEachResource(pair.first, pair.second, link, [&](int r) { crossing[r] += sent; });
    }
    for (const auto& [resource, bytes] : crossing) seconds = std::max(seconds, bytes / problem_.request().resources[resource].bytes_per_s);
    for (const auto& [device, bytes] : restored_) {
      seconds = std::max(seconds, restore_.latency_s + static_cast<double>(bytes) / restore_.bytes_per_s);
    }
    return seconds;
  }

 private:
  const Problem& problem_;
  const Restore restore_;
  std::map<std::pair<int, int>, int64_t> pairs_;
  std::map<int, int64_t> restored_;
};

}  // namespace

MigrationModel::MigrationModel(const Problem& problem, const RunningPlan& running, const Restore& restore)
    : problem_(problem), restore_(restore), was_on_(DeviceOfOps(problem.request(), running)), tied_of_(problem.request().ops.size()) {
  const std::vector<TiedParameter>& tied = problem.request().tied;
  for (size_t t = 0; t < tied.size(); ++t) {
    for (int op : tied[t].ops) {
      tied_of_[op].push_back(static_cast<int>(t));
      if (was_on_[op] >= 0) there_.emplace_back(static_cast<int>(t), was_on_[op]);
    }
  }
  std::sort(there_.begin(), there_.end());
}

template <typename Visit>
void MigrationModel::ForEachMove(const Assignment& assignment, Visit visit) const {
  const PlanRequest& request = problem_.request();
  // Weights that several ops share travel once to each device, and not where one of their uses has been.
  std::set<std::pair<int, int>> sent;
  for (size_t s = 0; s < assignment.devices.size(); ++s) {
    const int to = assignment.devices[s];
    const int end = s + 1 < assignment.begins.size() ? assignment.begins[s + 1] : problem_.positions();
    for (int p = assignment.begins[s]; p < end; ++p) {
      const int op = problem_.op_at(p);
      if (was_on_[op] == to) continue;
      int64_t bytes = request.ops[op].parameter_bytes + request.ops[op].optimizer_bytes;
      for (int t : tied_of_[op]) {
        const bool known = std::binary_search(there_.begin(), there_.end(), std::pair(t, to)) || !sent.insert({t, to}).second;
        if (known) bytes -= request.tied[t].bytes + request.tied[t].optimizer_bytes;
      }
      visit(op, was_on_[op], to, std::max<int64_t>(0, bytes));
    }
  }
}

Migration MigrationModel::MigrationTo(const Assignment& assignment) const {
  const PlanRequest& request = problem_.request();
  Migration migration;
  Transfers transfers(problem_, restore_);
  std::map<int, MovedOp> moved;
  ForEachMove(assignment, [&](int op, int from, int to, int64_t bytes) {
    moved[op] = {request.ops[op].name, from >= 0 ? request.devices[from].name : "", request.devices[to].name, bytes};
    migration.bytes += bytes;
    transfers.Add(from, to, bytes);
  });
  for (auto& [op, move] : moved) migration.moved.push_back(std::move(move));
  migration.transfer_s = transfers.Seconds();
  return migration;
}

double MigrationModel::TransferSeconds(const Assignment& assignment) const {
  Transfers transfers(problem_, restore_);
  ForEachMove(assignment, [&](int, int from, int to, int64_t bytes) { transfers.Add(from, to, bytes); });
  return transfers.Seconds();
}

}  // namespace fusionllm::scheduler::replan
