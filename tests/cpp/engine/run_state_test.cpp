#include "engine/run/run_state.h"

#include <gtest/gtest.h>

#include <limits>

#include "engine/errors.h"
#include "engine/files/json_text.h"
#include "engine/hash/xxh64.h"
#include "engine/run/resume.h"
#include "engine/sample_state.h"
#include "engine/scratch_directory.h"

namespace andrea {
namespace {

using namespace andrea::testing;

/// The text with one field changed (or removed, with `change` a discarded value) and the hash made right
/// again.
std::string with_field(const std::string& text, const std::string& field, const Json& change) {
  std::vector<JsonFault> faults;
  Json object = parse_json(text, &faults);
  if (change.is_discarded())
    object.erase(field);
  else
    object[field] = change;
  object.erase("state_hash");
  const std::string body = canonical_json(object);
  object["state_hash"] = hash_hex(xxh64(body.data(), body.size()));
  return canonical_json(object);
}

TEST(RunStateFile, EveryFieldSurvives) {
  const RunState state = sample_state(1234);
  const RunState back = parse_run_state(to_json(state), "x");
  EXPECT_EQ(back.step, 1234);
  EXPECT_EQ(back.bin_hash, state.bin_hash);
  EXPECT_EQ(back.tokenizer_hash, state.tokenizer_hash);
  EXPECT_EQ(back.config, state.config);
  ASSERT_EQ(back.sources.size(), 2U);
  EXPECT_EQ(back.sources[1].name, state.sources[1].name);
  EXPECT_EQ(back.sources[1].cursor, state.sources[1].cursor);
  EXPECT_EQ(back.sources[1].content_hash, state.sources[1].content_hash);
  EXPECT_EQ(back.sources[0].eval_hash, std::nullopt);
  EXPECT_EQ(back.sources[1].eval_hash, 7U);
  EXPECT_EQ(back.curriculum, state.curriculum);
  EXPECT_EQ(back.loss_scale, state.loss_scale);
  EXPECT_EQ(back.good_steps, state.good_steps);
  EXPECT_EQ(back.skipped_total, state.skipped_total);
  EXPECT_EQ(back.skipped_in_a_row, state.skipped_in_a_row);
  EXPECT_EQ(back.last_loss, state.last_loss);
  EXPECT_EQ(back.has_smma, state.has_smma);
  EXPECT_EQ(back.smma, state.smma);
  EXPECT_EQ(back.best_smma, state.best_smma);
  EXPECT_EQ(back.best_step, state.best_step);
  EXPECT_EQ(back.gate_failures, state.gate_failures);
  EXPECT_EQ(back.stopped_by_gate, state.stopped_by_gate);
  EXPECT_EQ(back.edge_pending, state.edge_pending);
  EXPECT_EQ(back.finished, state.finished);
  EXPECT_EQ(back.not_reproducible_from, state.not_reproducible_from);
  EXPECT_EQ(back.history_bytes, state.history_bytes);
  EXPECT_EQ(back.version, state.version);
  EXPECT_EQ(back.device, state.device);
  EXPECT_EQ(back.arithmetic, state.arithmetic);
  EXPECT_EQ(back.precision, state.precision);
  EXPECT_EQ(back.recompute, state.recompute);
  EXPECT_EQ(back.gemm, state.gemm);
  EXPECT_EQ(back.threads, state.threads);
  EXPECT_EQ(back.written_unix, state.written_unix);
  EXPECT_EQ(to_json(back), to_json(state));
}

TEST(RunStateFile, IsSortedWithHashesInHexAndShortNumbers) {
  const std::string text = to_json(sample_state(5));
  std::string previous;
  std::size_t lines = 0;
  for (std::size_t at = text.find("\n \""); at != std::string::npos;
       at = text.find("\n \"", at + 1), ++lines) {
    const std::string key = text.substr(at + 3, text.find('"', at + 3) - at - 3);
    EXPECT_LT(previous, key);
    previous = key;
  }
  EXPECT_GT(lines, 20U);
  EXPECT_HAS(text, "\"bin_hash\": \"fedcba9876543210\"");
  EXPECT_HAS(text, "\"loss_scale\": 0.1");
  EXPECT_HAS(text, "9223372036854775807");
}

TEST(RunStateFile, EveryFlippedByteIsNoticed) {
  const std::string text = to_json(sample_state(77));
  const RunState state = parse_run_state(text, "x");
  for (std::size_t i = 0; i < text.size(); ++i)
    for (const int bit : {0x01, 0x10, 0x80}) {
      std::string flipped = text;
      flipped[i] = static_cast<char>(flipped[i] ^ bit);
      try {
        // White space may turn into other white space: then nothing is lost.
        EXPECT_EQ(to_json(parse_run_state(flipped, "x")), text) << "byte " << i;
      } catch (const CheckpointError&) {
      }
    }
}

TEST(RunStateFile, EveryTruncationIsNoticed) {
  const std::string text = to_json(sample_state(77));
  for (std::size_t length = 0; length + 1 < text.size(); ++length)
    EXPECT_THROW(parse_run_state(text.substr(0, length), "x"), CheckpointError) << length;
}

TEST(RunStateFile, EveryMissingFieldIsNamed) {
  const std::string text = to_json(sample_state(77));
  std::vector<JsonFault> faults;
  const Json object = parse_json(text, &faults);
  for (const auto& [field, value] : object.items()) {
    if (field == "state_hash") continue;
    const std::string message = message_of<CheckpointError>([&, name = field] {
      parse_run_state(with_field(text, name, Json(Json::value_t::discarded)), "dir/step.state.json");
    });
    EXPECT_HAS(message, field);
    EXPECT_HAS(message, "is missing");
    EXPECT_HAS(message, "dir/step.state.json");
  }
}

TEST(RunStateFile, WrongTypesAndUnknownFieldsAreNamed) {
  const std::string text = to_json(sample_state(77));
  const auto refusal = [&](const char* field, const Json& value) {
    return message_of<CheckpointError>([&] { parse_run_state(with_field(text, field, value), "x"); });
  };
  EXPECT_HAS(refusal("step", "7"), "field step must be an integer");
  EXPECT_HAS(refusal("step", -1), "field step is -1");
  EXPECT_HAS(refusal("step", std::uint64_t{1} << 63), "outside");
  EXPECT_HAS(refusal("smma", nullptr), "field smma must be a number");
  EXPECT_HAS(refusal("bin_hash", "12"), "16 hexadecimal digits");
  EXPECT_HAS(refusal("finished", 1), "true or false");
  EXPECT_HAS(refusal("sources", 1), "must be an array");
  EXPECT_HAS(refusal("sources", Json::array({Json::object()})), "sources[0].name is missing");
  EXPECT_HAS(refusal("history_bytes", Json{{"a", "b"}}), "history_bytes.a must be an integer");
  EXPECT_HAS(refusal("format", 4), "format");
  EXPECT_HAS(refusal("gemm_table", Json{{"library", "x"}}), "gemm_table.products is missing");
  EXPECT_HAS(refusal("gemm_table", Json{{"library", "x"}, {"products", Json::array({1})}}),
             "gemm_table.products[0]");
  EXPECT_HAS(refusal("extra", 2), "extra is unknown");
  EXPECT_HAS(refusal("config", Json{{"a", 1}}), "config_hash");
}

TEST(RunStateFile, AStateOfFormat1HasNoProductsAndNoHeldOutHashesToCompare) {
  Json sources = Json::parse(to_json(sample_state(5)))["sources"];
  for (Json& source : sources) source.erase("eval_hash");
  std::string text = with_field(to_json(sample_state(5)), "sources", sources);
  text = with_field(text, "recompute", Json(Json::value_t::discarded));
  text = with_field(text, "gemm_table", Json(Json::value_t::discarded));
  const RunState state = parse_run_state(with_field(text, "format", 1), "x");
  EXPECT_EQ(state.threads, 2);
  EXPECT_EQ(state.recompute, "");
  EXPECT_EQ(state.gemm, GemmChoices{});
  EXPECT_EQ(state.sources[1].eval_hash, std::nullopt);
}

TEST(GemmChoices, DifferencesNameTheProductAndBothAlgorithms) {
  const GemmChoices then{"cuBLASLt 13.0.0", {{"x W^T 8 x 8 x 8", "algo 66"}, {"dy W 8 x 8 x 8", "algo 21"}}};
  GemmChoices now = then;
  EXPECT_TRUE(gemm_differences(then, now).empty());
  EXPECT_EQ(gemm_warning(then, now), "");
  now.products.push_back({"x W^T 1 x 8 x 8", "algo 5"});  // not made before: nothing to compare
  EXPECT_TRUE(gemm_differences(then, now).empty());
  EXPECT_TRUE(gemm_differences(now, then).empty());
  now.library = "cuBLASLt 13.1.0";
  now.products[1].algorithm = "algo 24";
  const std::string warning = gemm_warning(then, now);
  for (const char* part : {"not bit-exact", "13.0.0", "13.1.0", "dy W 8 x 8 x 8", "algo 21", "algo 24"})
    EXPECT_HAS(warning, part);
  EXPECT_EQ(warning.find("x W^T"), std::string::npos) << warning;
}

TEST(RunStateFile, ABadCurriculumIsRefusedBeforeItIsWritten) {
  RunState state = sample_state(1);
  state.curriculum = "{\"mean\": NaN}";
  EXPECT_HAS(message_of<CheckpointError>([&] { to_json(state); }), "curriculum");
}

}  // namespace
}  // namespace andrea
