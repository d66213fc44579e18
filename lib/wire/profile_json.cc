#include "lib/wire/profile_json.h"

#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "lib/base/status_macros.h"
#include "lib/wire/json_reader.h"

namespace fusionllm::wire {
namespace {

using nlohmann::json;

constexpr double kMaxProfileSeconds = 1e9;
constexpr int64_t kMaxProfileBytes = int64_t{1} << 60;
constexpr double kMaxHalfWidth = 1e30;  // samples that hardly tell anything give wide intervals
constexpr int kMaxSamples = 1'000'000;
constexpr size_t kMaxDataKinds = 64;

void AddOptional(json& object, const char* key, const std::optional<double>& number) {
  if (number.has_value()) object[key] = *number;
}

void ReadOptional(ObjectReader& in, const char* key, double most, std::optional<double>& out) {
  if (in.Has(key)) in.Number(key, out.emplace(), 0, most);
}

json ToJson(const DeviceProfile& profile) {
  json ops = json::object();
  for (const auto& [signature, op] : profile.ops) {
    ops[signature] = {
        {"seconds", op.seconds}, {"workspace_bytes", op.workspace_bytes}, {"class", op.op_class}, {"flops", op.flops}, {"bytes", op.bytes}};
  }
  json rates = json::object();
  for (const auto& [name, rate] : profile.rates) {
    rates[name] = {{"overhead_seconds", rate.overhead_s},
                   {"seconds_per_flop", rate.seconds_per_flop},
                   {"seconds_per_byte", rate.seconds_per_byte},
                   {"relative_error", rate.relative_error},
                   {"samples", rate.samples}};
    if (rate.specified) rates[name]["specified"] = true;
    AddOptional(rates[name], "overhead_seconds_ci95", rate.overhead_ci95_s);
    AddOptional(rates[name], "seconds_per_flop_ci95", rate.seconds_per_flop_ci95);
    AddOptional(rates[name], "seconds_per_byte_ci95", rate.seconds_per_byte_ci95);
  }
  json data = json::object();
  for (const auto& [kind, seconds] : profile.data_seconds_per_byte) data[kind] = {{"seconds_per_byte", seconds}};
  json codecs = json::object();
  for (const auto& [name, codec] : profile.codecs) {
    codecs[name] = {{"encode_seconds", codec.encode_seconds},
                    {"decode_seconds", codec.decode_seconds},
                    {"encode_message_seconds", codec.encode_message_seconds},
                    {"decode_message_seconds", codec.decode_message_seconds},
                    {"encode_kept_seconds", codec.encode_kept_seconds},
                    {"decode_kept_seconds", codec.decode_kept_seconds}};
  }
  json document = {{"name", profile.name},
                   {"site", profile.site},
                   {"backend", profile.backend},
                   {"threads", profile.threads},
                   {"memory_bytes", profile.memory_bytes},
                   {"compute_scale", profile.compute_scale},
                   {"spare", profile.spare},
                   {"ops", std::move(ops)},
                   {"rates", std::move(rates)},
                   {"update_seconds_per_element", profile.update_seconds_per_element},
                   {"data", std::move(data)},
                   {"codecs", std::move(codecs)}};
  if (!profile.specification.empty()) document["specification"] = profile.specification;
  if (!profile.arithmetic.empty()) document["arithmetic"] = profile.arithmetic;
  return document;
}

DeviceProfile ReadProfile(ObjectReader& in) {
  DeviceProfile profile;
  in.Text("name", profile.name);
  in.Text("site", profile.site);
  in.Text("backend", profile.backend);
  in.Text("specification", profile.specification, kMaxNameBytes, ObjectReader::kOptional);
  in.Text("arithmetic", profile.arithmetic, kMaxNameBytes, ObjectReader::kOptional);
  in.Integer("threads", profile.threads, 1, 4096);
  in.Integer("memory_bytes", profile.memory_bytes, 1, kMaxProfileBytes);
  in.Number("compute_scale", profile.compute_scale, 1e-6, 1);
  in.Bool("spare", profile.spare, ObjectReader::kOptional);
  in.Members("ops", kMaxProfiledOps, [&](const std::string& signature, ObjectReader& entry) {
    OpProfile& op = profile.ops[signature];
    entry.Number("seconds", op.seconds, 0, kMaxProfileSeconds);
    entry.Integer("workspace_bytes", op.workspace_bytes, 0, kMaxProfileBytes, ObjectReader::kOptional);
    entry.Text("class", op.op_class, kMaxNameBytes, ObjectReader::kOptional);
    entry.Number("flops", op.flops, 0, 1e30, ObjectReader::kOptional);
    entry.Number("bytes", op.bytes, 0, 1e30, ObjectReader::kOptional);
  });
  in.Members(
      "rates", opdag::kOpClassCount,
      [&](const std::string& name, ObjectReader& entry) {
        estimator::OpRate& rate = profile.rates[name];
        entry.Number("overhead_seconds", rate.overhead_s, 0, kMaxProfileSeconds);
        entry.Number("seconds_per_flop", rate.seconds_per_flop, 0, kMaxProfileSeconds);
        entry.Number("seconds_per_byte", rate.seconds_per_byte, 0, kMaxProfileSeconds);
        entry.Number("relative_error", rate.relative_error, 0, 1e9);
        entry.Bool("specified", rate.specified, ObjectReader::kOptional);
        entry.Integer("samples", rate.samples, rate.specified ? 0 : 1, kMaxSamples);
        ReadOptional(entry, "overhead_seconds_ci95", kMaxHalfWidth, rate.overhead_ci95_s);
        ReadOptional(entry, "seconds_per_flop_ci95", kMaxHalfWidth, rate.seconds_per_flop_ci95);
        ReadOptional(entry, "seconds_per_byte_ci95", kMaxHalfWidth, rate.seconds_per_byte_ci95);
      },
      ObjectReader::kOptional);
  in.Number("update_seconds_per_element", profile.update_seconds_per_element, 0, kMaxProfileSeconds);
  in.Members(
      "data", kMaxDataKinds,
      [&](const std::string& kind, ObjectReader& entry) {
        entry.Number("seconds_per_byte", profile.data_seconds_per_byte[kind], 0, kMaxProfileSeconds);
      },
      ObjectReader::kOptional);
  in.Members("codecs", 64, [&](const std::string& name, ObjectReader& entry) {
    CodecProfile& codec = profile.codecs[name];
    entry.Number("encode_seconds", codec.encode_seconds, 0, kMaxProfileSeconds);
    entry.Number("decode_seconds", codec.decode_seconds, 0, kMaxProfileSeconds);
    entry.Number("encode_message_seconds", codec.encode_message_seconds, 0, kMaxProfileSeconds, ObjectReader::kOptional);
    entry.Number("decode_message_seconds", codec.decode_message_seconds, 0, kMaxProfileSeconds, ObjectReader::kOptional);
    entry.Number("encode_kept_seconds", codec.encode_kept_seconds, 0, kMaxProfileSeconds, ObjectReader::kOptional);
    entry.Number("decode_kept_seconds", codec.decode_kept_seconds, 0, kMaxProfileSeconds, ObjectReader::kOptional);
  });
  if (in.ok() && profile.name.empty()) in.Fail("name", "is empty");
  return profile;
}

}  // namespace

std::string PrintProfile(const DeviceProfile& profile) { return PrintJson(ToJson(profile)); }

absl::StatusOr<DeviceProfile> ParseProfile(absl::string_view text) {
  FUSIONLLM_ASSIGN_OR_RETURN(const json document, ParseJson(text, "profile"));
  absl::Status status;
  ObjectReader in(document, "profile", status);
  FUSIONLLM_RETURN_IF_ERROR(status);
  DeviceProfile profile = ReadProfile(in);
  FUSIONLLM_RETURN_IF_ERROR(status);
  return profile;
}

std::string PrintProfiles(const ProfilesDocument& profiles) {
  json document = {{"version", kProfilesVersion}, {"devices", json::array()}, {"links", json::array()}};
  for (const DeviceProfile& device : profiles.devices) document["devices"].push_back(ToJson(device));
  for (const MeasuredLink& link : profiles.links) {
    document["links"].push_back({{"src", link.src},
                                 {"dst", link.dst},
                                 {"rtt_seconds", link.rtt_seconds},
                                 {"bandwidth_bytes_per_second", link.bandwidth_bytes_per_second}});
    json& entry = document["links"].back();
    if (!link.shared_link.empty()) entry["shared_link"] = link.shared_link;
    AddOptional(entry, "latency_seconds", link.latency_seconds);
    if (link.samples == 0) continue;
    entry["samples"] = link.samples;
    entry["relative_error"] = link.relative_error;
    AddOptional(entry, "latency_seconds_ci95", link.latency_ci95_seconds);
    AddOptional(entry, "bandwidth_bytes_per_second_ci95", link.bandwidth_ci95_bytes_per_second);
  }
  return PrintJson(document);
}

absl::StatusOr<ProfilesDocument> ParseProfiles(absl::string_view text) {
  FUSIONLLM_ASSIGN_OR_RETURN(const json document, ParseJson(text, "profiles"));
  absl::Status status;
  ObjectReader in(document, "profiles", status);
  FUSIONLLM_RETURN_IF_ERROR(status);
  int version = kProfilesVersion;
  in.Integer("version", version, 1, 1'000'000, ObjectReader::kOptional);
  if (version > kProfilesVersion) {
    in.Fail("version", absl::StrCat(version, " is newer than what this program reads, which is ", kProfilesVersion));
  }
  ProfilesDocument profiles;
  std::set<std::string> names;
  in.Objects("devices", kMaxProfiledDevices, [&](ObjectReader& entry) {
    profiles.devices.push_back(ReadProfile(entry));
    if (!names.insert(profiles.devices.back().name).second)
      entry.Fail("name", absl::StrCat("'", profiles.devices.back().name, "' stands twice"));
  });
  in.Objects("links", kMaxMeasuredLinks, [&](ObjectReader& entry) {
    MeasuredLink link;
    entry.Text("src", link.src);
    entry.Text("dst", link.dst);
    entry.Number("rtt_seconds", link.rtt_seconds, 0, kMaxProfileSeconds);
    entry.Number("bandwidth_bytes_per_second", link.bandwidth_bytes_per_second, 1e-3, 1e15);
    entry.Text(entry.KeyOrAlias("shared_link", "line"), link.shared_link, 2 * kMaxNameBytes, ObjectReader::kOptional);
    ReadOptional(entry, "latency_seconds", kMaxProfileSeconds, link.latency_seconds);
    entry.Integer("samples", link.samples, 0, kMaxSamples, ObjectReader::kOptional);
    if (link.samples > 0) {
      entry.Number("relative_error", link.relative_error, 0, 1e9);
      ReadOptional(entry, "latency_seconds_ci95", kMaxHalfWidth, link.latency_ci95_seconds);
      ReadOptional(entry, "bandwidth_bytes_per_second_ci95", kMaxHalfWidth, link.bandwidth_ci95_bytes_per_second);
    }
    if (entry.ok() && !names.contains(link.src)) entry.Fail("src", absl::StrCat("no device '", link.src, "'"));
    if (entry.ok() && !names.contains(link.dst)) entry.Fail("dst", absl::StrCat("no device '", link.dst, "'"));
    if (entry.ok() && link.src == link.dst) entry.Fail("dst", "is the source itself");
    profiles.links.push_back(std::move(link));
  });
  FUSIONLLM_RETURN_IF_ERROR(status);
  return profiles;
}

}  // namespace fusionllm::wire
