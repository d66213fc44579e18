#include "lib/job/parse.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <functional>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "lib/base/dns_label.h"
#include "lib/base/file_error.h"
#include "lib/base/object_uri.h"
#include "lib/base/status_macros.h"
#include "lib/job/checks.h"
#include "lib/job/document.h"
#include "lib/job/field_hints.h"
#include "lib/job/field_locations.h"
#include "lib/job/fusion_job_fields.h"
#include "lib/job/initial_model.h"
#include "lib/job/name.h"
#include "lib/job/printer.h"
#include "lib/job/reader.h"
#include "lib/job/server_fields.h"
#include "lib/job/topology_fields.h"
#include "lib/job/training_defaults.h"

namespace fusionllm::job {
namespace {

void Check(const FusionJob& job, const Report& report) { CheckJob(job, report); }
void Check(const Topology& topology, const Report& report) { CheckTopology(topology, report); }
void FillIn(const Node& root, FusionJob& job) { FillInTrainingDefaults(root, job); }
void FillIn(const Node&, Topology&) {}
const FieldHints& HintsFor(const FusionJob&) { return FusionJobHints(); }
const FieldHints& HintsFor(const Topology&) { return TopologyHints(); }
void DropForeign(const FusionJob&, Node& root) { DropServerFields(root); }
void DropForeign(const Topology&, Node&) {}  // no API server knows it

// Reading a Topology as a FusionJob would give twenty findings that all miss the point.
bool IsOtherKind(const Node& root, absl::string_view kind) {
  const Node* given = root.Find("kind");
  return given != nullptr && (given->kind != Node::Kind::kScalar || given->text != kind);
}

template <class T>
using FurtherCheck = std::function<void(const T&, const Report&)>;

// Fills in what the document leaves to files beside it, before the value is checked.
template <class T>
using Completion = std::function<void(T&, const Report&)>;

template <class T>
absl::StatusOr<T> Interpret(const Node& root, absl::string_view kind, Problems& problems, const FurtherCheck<T>& check_further = nullptr,
                            const Completion<T>& complete = nullptr) {
  problems.SetRoot(&root);
  T value;
  Reader reader(root, problems, Reader::UnknownKeys::kRefused, &HintsFor(value));
  if (IsOtherKind(root, kind)) {
    reader.Constant("apiVersion", kApiVersion);
    reader.Constant("kind", kind);
    return problems.ToStatus();
  }
  reader.ReadObject(value);
  const Problems reading = problems;
  const Report report = [&](std::initializer_list<absl::string_view> paths, absl::string_view message) {
    // A field that could not be read stands at its default: what that breaks is not the user's doing.
    for (const absl::string_view path : paths) {
      if (reading.Touches(path)) return;
    }
    problems.Add(*paths.begin(), message);
  };
  if (complete != nullptr) complete(value, report);
  FillIn(root, value);  // by the size of the model, which may be that of its start
  Check(value, report);
  if (check_further != nullptr) check_further(value, report);
  FUSIONLLM_RETURN_IF_ERROR(problems.ToStatus());
  return value;
}

template <class T>
absl::StatusOr<T> Parse(absl::string_view yaml, absl::string_view file_name, absl::string_view kind, std::span<const std::string> overrides,
                        const DocumentLimits& limits, Node& root, const FurtherCheck<T>& check_further = nullptr,
                        const Completion<T>& complete = nullptr) {
  Problems problems(file_name);
  if (!LoadDocument(yaml, root, problems, limits)) return problems.ToStatus();
  problems.SetRoot(&root);
  DropForeign(T(), root);  // before what --set says, which is the user's own
  ApplyOverrides(overrides, root, problems);
  return Interpret<T>(root, kind, problems, check_further, complete);
}

// Empty: it can be read. Does not open it: it may be a pipe.
std::string WhyUnreadable(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) return "it is a folder";
  return access(path.c_str(), R_OK) == 0 ? "" : std::strerror(errno);
}

absl::StatusOr<std::string> ReadFile(const std::string& path, size_t max_bytes) {
  std::error_code error;
  const bool folder = std::filesystem::is_directory(path, error);
  if (folder) return absl::NotFoundError(absl::StrCat(path, ": cannot be read: it is a folder"));
  const auto unreadable = [&path](int number) {
    const absl::Status why = base::FileError(number, "read", path);
    const absl::StatusCode code = absl::IsResourceExhausted(why) ? why.code() : absl::StatusCode::kNotFound;
    return absl::Status(code, absl::StrCat(path, ": cannot be read: ", std::strerror(number)));
  };
  const int descriptor = open(path.c_str(), O_RDONLY | O_CLOEXEC);  // it may be a pipe
  if (descriptor < 0) return unreadable(errno);
  const auto close_it = absl::MakeCleanup([descriptor] { close(descriptor); });
  std::string text(max_bytes + 1, '\0');  // one more than is allowed: LoadDocument then says so
  size_t size = 0;
  while (size < text.size()) {
    const ssize_t got = read(descriptor, text.data() + size, text.size() - size);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return unreadable(errno);
    if (got == 0) break;
    size += static_cast<size_t>(got);
  }
  text.resize(size);
  return text;
}

}  // namespace

absl::StatusOr<FusionJob> ParseFusionJob(absl::string_view yaml, absl::string_view file_name, std::span<const std::string> overrides) {
  Node root;
  return Parse<FusionJob>(yaml, file_name, "FusionJob", overrides, {}, root);
}

absl::StatusOr<FusionJob> FusionJobFromTree(const Node& root) {
  Problems problems("");
  return Interpret<FusionJob>(root, "FusionJob", problems);
}

absl::StatusOr<Topology> ParseTopology(absl::string_view yaml, absl::string_view file_name) {
  Node root;
  return Parse<Topology>(yaml, file_name, "Topology", {}, kTopologyLimits, root);
}

absl::StatusOr<FusionJob> LoadFusionJob(const std::string& path, std::span<const std::string> overrides, FieldLocations* places,
                                        const RemoteStart& remote_start) {
  FUSIONLLM_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kMaxDocumentBytes));
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::absolute(path, error).parent_path();
  if (error) return absl::NotFoundError(absl::StrCat(path, ": has no absolute path: ", error.message()));
  // Data may be elsewhere, but without its graph a job says nothing. Here, where the line is known.
  const FurtherCheck<FusionJob> check_further = [&](const FusionJob& job, const Report& report) {
    if (base::IsDnsLabel(job.metadata.name) && !IsJobName(job.metadata.name)) {
      report({"metadata.name"}, absl::StrCat("must be ", kJobNameRule));
    }
    if (!job.spec.model.graph || !job.spec.model.graph->file) return;
    const std::string file = (folder / *job.spec.model.graph->file).lexically_normal().string();
    const std::string why = WhyUnreadable(file);
    if (!why.empty()) report({"spec.model.graph.file"}, absl::StrCat("cannot read ", file, ": ", why));
  };
  const Completion<FusionJob> take_start = [&](FusionJob& job, const Report& report) {
    ApplyInitialModel(folder.string(), job.spec, report, remote_start);
  };
  Node root;
  FUSIONLLM_ASSIGN_OR_RETURN(FusionJob job, Parse<FusionJob>(text, path, "FusionJob", overrides, {}, root, check_further, take_start));
  ResolvePaths(folder.string(), job);
  if (places != nullptr) *places = FieldLocations(path, std::move(root), overrides);
  return job;
}

absl::StatusOr<Topology> LoadTopology(const std::string& path) {
  FUSIONLLM_ASSIGN_OR_RETURN(const std::string text, ReadFile(path, kTopologyLimits.bytes));
  return ParseTopology(text, path);
}

void ResolvePaths(absl::string_view folder, FusionJob& job) {
  const std::filesystem::path start{std::string(folder)};
  const auto resolve = [&](std::string& path) {
    if (!base::IsUri(path)) path = (start / path).lexically_normal().string();
  };
  for (std::string& path : job.spec.data.path) resolve(path);
  if (job.spec.data.validation) {
    for (std::string& path : job.spec.data.validation->path) resolve(path);
  }
  if (job.spec.model.graph && job.spec.model.graph->file) resolve(*job.spec.model.graph->file);
  if (job.spec.model.init.from) resolve(*job.spec.model.init.from);
}

std::string ToYaml(const FusionJob& job) { return Printer::Print(job); }
std::string ToYaml(const Topology& topology) { return Printer::Print(topology); }

}  // namespace fusionllm::job
