#include "engine/config/experiment.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>

#include "engine/config/fields.h"
#include "engine/errors.h"
#include "engine/scratch_directory.h"

namespace andrea {
namespace {

using namespace andrea::testing;
using nlohmann::json;

json smallest() {
  return json::parse(R"({"name": "ANDREA-NANO",
    "model": {"d_model": 128, "n_head": 4, "n_layer": 4, "context": 256, "vocab_size": 1281},
    "train": {"steps": 1000, "batch_size": 8}})");
}

json with_sources() {
  json object = smallest();
  object["data"] = json::parse(R"({"tokenizer": "tok.json", "sources": [
    {"name": "chat", "train": "chat.btok", "eval": "../chat.eval.btok", "floor": 0.8},
    {"name": "irc", "train": "/abs/irc.btok"}]})");
  return object;
}

Experiment parse(const json& object) { return parse_experiment(object.dump(), "/conf", "exp.json"); }

/// The message with which `object` is refused after `pointer` was set to `value`.
std::string refusal(json object, const std::string& pointer, const json& value) {
  object[json::json_pointer(pointer)] = value;
  return message_of<ConfigError>([&] { parse(object); });
}

std::string refusal_of_text(const std::string& text) {
  return message_of<ConfigError>([&] { parse_experiment(text, "/conf", "exp.json"); });
}

TEST(ExperimentFile, HasTheDefaultsOfTheDocument) {
  const Experiment e = parse(smallest());
  EXPECT_EQ(e.name, "ANDREA-NANO");
  EXPECT_TRUE(e.model.tie_embeddings);
  EXPECT_EQ(e.train.micro_batches, 1);
  EXPECT_EQ(e.train.precision, Precision::kFp32);
  EXPECT_EQ(e.train.seed, 42U);
  EXPECT_EQ(e.train.lr.peak, 3e-4);
  EXPECT_EQ(e.train.lr.min, 3e-5);
  EXPECT_EQ(e.train.lr.warmup_steps, 2000);
  EXPECT_EQ(e.train.adamw.beta2, 0.999);
  EXPECT_EQ(e.train.smma, 100);
  EXPECT_TRUE(e.data.sources.empty());
  EXPECT_EQ(e.curriculum.policy, "ucb1_dice");
  EXPECT_FALSE(e.curriculum.ucb_c);
  EXPECT_EQ(e.curriculum.phases.size(), 5U);
  EXPECT_EQ(e.curriculum.warmup_steps, 20000);
  EXPECT_EQ(e.samples.every, 100);
  EXPECT_EQ(e.samples.tokens, 420);
  EXPECT_EQ(e.samples.prompts, std::vector<std::string>{""});
  EXPECT_EQ(e.checkpoint.every, 100);
  EXPECT_EQ(e.checkpoint.keep_last, 5);
  EXPECT_EQ(e.origin, "exp.json");
}

TEST(ExperimentFile, ReadsEveryKey) {
  json object = with_sources();
  object["train"] = json::parse(R"({"steps": 5, "batch_size": 2, "micro_batches": 3, "precision": "bf16",
    "allow_tf32": true, "seed": 4294967295, "clip_norm": 0.5, "max_skipped_steps": 4, "smma": 20,
    "lr": {"peak": 1e-3, "min": 0, "warmup_steps": 0},
    "adamw": {"beta1": 0.8, "beta2": 0.95, "eps": 1e-6, "weight_decay": 0},
    "eval_every": 50, "eval_batches": 2})");
  object["curriculum"] =
      json::parse(R"({"policy": "fixed", "ucb_c": 1.5, "ema_alpha": 0.2, "reward_scale": 10,
    "background_weight": 0.3, "phases": [{"steps": 7, "dice": 3}], "curriculum_warmup_steps": 9,
    "curriculum_warmup_sources": ["irc"], "discount": 0.9, "epoch_penalty": "exponential", "reward": "phase_mean",
    "reward_unit": "byte", "reward_sign": "change"})");
  object["samples"] = json::parse(R"({"sample_every": 0, "tokens": 5, "temperature": 0, "top_k": 0,
    "prompts": ["> hi"], "threshold": 12.5, "patience": 2})");
  object["checkpoint"] = json::parse(R"({"every": 10, "min_seconds": 0, "keep_last": 2, "keep_every": 0})");
  object["data"]["sources"][1]["weight"] = 2;
  object["data"]["sources"][1]["cap"] = 0.5;
  object["model"]["tie_embeddings"] = false;
  const Experiment e = parse(object);
  EXPECT_FALSE(e.model.tie_embeddings);
  EXPECT_EQ(e.train.precision, Precision::kBf16);
  EXPECT_EQ(e.train.seed, 4294967295U);
  EXPECT_EQ(e.train.adamw.weight_decay, 0);
  EXPECT_EQ(e.train.eval_batches, 2);
  EXPECT_EQ(e.data.tokenizer, "/conf/tok.json");
  EXPECT_EQ(e.data.sources[0].train, "/conf/chat.btok");
  EXPECT_EQ(e.data.sources[0].eval, "/chat.eval.btok");
  EXPECT_EQ(e.data.sources[1].train, "/abs/irc.btok");
  EXPECT_EQ(e.data.sources[1].eval, "");
  EXPECT_FALSE(e.data.sources[0].weight);
  EXPECT_EQ(e.data.sources[1].weight, 2.0);
  EXPECT_EQ(e.curriculum.ucb_c, 1.5);
  EXPECT_EQ(e.curriculum.phases.size(), 1U);
  EXPECT_EQ(e.curriculum.reward_unit, "byte");
  EXPECT_EQ(e.curriculum.reward_sign, "change");
  EXPECT_EQ(e.samples.threshold, 12.5);
  EXPECT_EQ(e.checkpoint.keep_every, 0);
}

// The effective config reads back as itself, and every key in it is one the reader knows.
TEST(ExperimentFile, TheEffectiveConfigIsAFixedPoint) {
  json without_sources = with_sources();
  without_sources["data"].erase("sources");
  for (const json& object : {smallest(), with_sources(), without_sources}) {
    const std::string effective = parse(object).effective_json();
    EXPECT_EQ(parse_experiment(effective, "/elsewhere", "x").effective_json(), effective);
    const json back = json::parse(effective);
    EXPECT_EQ(back["train"]["lr"]["peak"], 3e-4);
    EXPECT_EQ(back["samples"]["sample_every"], 100);
    EXPECT_EQ(back["curriculum"]["ucb_c"], "auto");
  }
}

TEST(ExperimentFile, AllFaultsAreToldAtOnce) {
  const std::string message = refusal_of_text(R"({"name": "a/b", "modle": {},
    "model": {"d_modell": 10, "n_head": "4", "n_layer": 0, "context": 1.5, "vocab_size": 1},
    "train": {"steps": 0, "batch_size": 8, "lr": {"peak": -1}, "micro_batches": true},
    "samples": {"every": 5}})");
  for (const char* part :
       {"exp.json: 12 faults", "\n  name: is \"a/b\"", "\n  modle: unknown key; did you mean \"model\"?",
        "\n  model.d_modell: unknown key; did you mean \"d_model\"?", "\n  model.d_model: is missing",
        "\n  model.n_head: must be a whole number, is a string (\"4\")",
        "\n  model.n_layer: is 0, must be from 1 to 4096", "\n  model.context: must be a whole number",
        "\n  model.vocab_size: is 1, must be from 2", "\n  train.steps: is 0",
        "\n  train.lr.peak: is -1, must be at least 0",
        "\n  train.micro_batches: must be a whole number, is a boolean", "\n  samples.every: unknown key"})
    EXPECT_HAS(message, part);
}

TEST(ExperimentFile, AMisplacedKeyIsToldWhereItBelongs) {
  EXPECT_HAS(refusal(smallest(), "/model/warmup_steps", 5), "it belongs to train.lr.warmup_steps");
  EXPECT_HAS(refusal(smallest(), "/samples/keep_last", 5), "it belongs to checkpoint.keep_last");
  EXPECT_HAS(refusal(with_sources(), "/data/sources/1/flor", 5),
             "data.sources[1].flor: unknown key; did you mean \"floor\"?");
}

TEST(ExperimentFile, ImpossibleModels) {
  EXPECT_HAS(refusal(smallest(), "/model/n_head", 3), "does not divide d_model 128");
  EXPECT_HAS(refusal(smallest(), "/model/d_model", 65536),
             "parameters; a checkpoint counts at most 2147483647");
  json large = smallest();
  large["model"]["vocab_size"] = 2147483647;
  large["model"]["d_model"] = 1;
  large["model"]["n_head"] = 1;
  EXPECT_HAS(refusal(large, "/train/batch_size", 1048576), "2^50");
  EXPECT_HAS(refusal(smallest(), "/model/vocab_size", 18446744073709551615U), "must be from 2 to 2147483647");
  EXPECT_HAS(refusal(smallest(), "/model/context", -9223372036854775807), "must be from 1");
  json s480 = smallest();
  s480["model"] = {
      {"d_model", 1536}, {"n_head", 24}, {"n_layer", 16}, {"context", 1024}, {"vocab_size", 8449}};
  parse(s480);
}

TEST(ExperimentFile, ImpossibleTraining) {
  EXPECT_HAS(refusal(smallest(), "/train/lr/min", 1),
             "train.lr.min: is 1.0, above peak 0.0003 (the default)");
  EXPECT_HAS(refusal(smallest(), "/train/lr/peak", 1e-5),
             "train.lr.min: is 3e-05 (the default), above peak 1e-05");
  EXPECT_HAS(refusal(smallest(), "/train/precision", "fp61"), "did you mean \"fp16\"?");
  EXPECT_HAS(refusal(smallest(), "/train/seed", 4294967296), "must be from 0 to 4294967295");
  EXPECT_HAS(refusal(smallest(), "/train/seed", -1), "must be from 0");
  EXPECT_HAS(refusal(smallest(), "/train/adamw/beta1", 1), "must be at least 0 and at most 0.9999999");
  EXPECT_HAS(refusal(smallest(), "/train/adamw/eps", 0), "train.adamw.eps");
  EXPECT_HAS(refusal(smallest(), "/train/clip_norm", 0), "train.clip_norm");
  EXPECT_HAS(refusal(smallest(), "/train/smma", 0), "train.smma");
  EXPECT_HAS(refusal(smallest(), "/train/lr", 3e-4), "train.lr: must be an object, is a number (0.0003)");
  EXPECT_HAS(refusal(smallest(), "/train", nullptr), "train: must be an object, is null");
  json missing = smallest();
  missing.erase("train");
  EXPECT_HAS(message_of<ConfigError>([&] { parse(missing); }), "train: is missing");
}

TEST(ExperimentFile, ImpossibleSources) {
  EXPECT_HAS(refusal(with_sources(), "/data/sources/1/name", "chat"), "data.sources[1].name: is \"chat\"");
  EXPECT_HAS(refusal(with_sources(), "/data/sources/0/cap", 0.5),
             "data.sources[0].floor: is 0.8, above cap 0.5");
  EXPECT_HAS(refusal(with_sources(), "/data/sources/0/floor", 1.5), "above cap 1.0 (the default)");
  EXPECT_HAS(refusal(with_sources(), "/data/sources/0/weight", -1), "data.sources[0].weight");
  EXPECT_HAS(refusal(with_sources(), "/data/sources/0/train", ""), "data.sources[0].train: is empty");
  EXPECT_HAS(refusal(with_sources(), "/data/sources", json::array()), "list at least one source");
  EXPECT_HAS(refusal(with_sources(), "/data/sources/0", 5), "data.sources[0]: must be an object");
  json object = with_sources();
  object["curriculum"]["policy"] = "fixed";
  object["data"]["sources"][0]["weight"] = 0;
  EXPECT_HAS(refusal(object, "/data/sources/1/weight", 0), "all weights are 0");
  object = with_sources();
  object["data"]["sources"][0].erase("floor");
  object["data"]["sources"][0]["cap"] = 0;
  EXPECT_HAS(refusal(object, "/data/sources/1/cap", 0), "all caps are 0");
  EXPECT_HAS(refusal(object, "/curriculum/curriculum_warmup_sources", {"chat"}), "in the warm-up");
}

TEST(ExperimentFile, ImpossibleCurricula) {
  EXPECT_HAS(refusal(smallest(), "/curriculum/policy", "ucb1_dise"), "did you mean \"ucb1_dice\"?");
  EXPECT_HAS(refusal(smallest(), "/curriculum/ucb_c", "automatic"), "must be \"auto\" or a number");
  EXPECT_HAS(refusal(smallest(), "/curriculum/ucb_c", -1), "curriculum.ucb_c");
  EXPECT_HAS(refusal(smallest(), "/curriculum/ema_alpha", 0), "above 0 and at most 1");
  EXPECT_HAS(refusal(smallest(), "/curriculum/phases", json::array()), "curriculum.phases: is empty");
  EXPECT_HAS(refusal(smallest(), "/curriculum/phases", {{{"steps", 7}}}),
             "curriculum.phases[0].dice: is missing");
  EXPECT_HAS(refusal(with_sources(), "/curriculum/curriculum_warmup_sources", {"chad"}),
             "did you mean \"chat\"?");
  EXPECT_HAS(refusal(with_sources(), "/curriculum/curriculum_warmup_sources", {"chat", "chat"}), "already");
  EXPECT_HAS(refusal(with_sources(), "/curriculum/curriculum_warmup_sources", {1}), "[0]: must be a string");
}

TEST(ExperimentFile, TheNameBeginsFileNames) {
  for (const char* name :
       {"", ".", "..", ".hidden", "a/b", "a b", "-rf", "na\xC3\xAFve", "a\n", "step_000100"})
    EXPECT_HAS(refusal(smallest(), "/name", name), "name: ");
  EXPECT_HAS(refusal(smallest(), "/name", std::string(101, 'a')), "name: ");
  for (const char* name : {"ANDREA-12M", "a.b_c-d", "0"}) {
    json object = smallest();
    object["name"] = name;
    EXPECT_EQ(parse(object).name, name);
  }
}

TEST(ExperimentFile, TextThatIsNoStrictJson) {
  EXPECT_HAS(refusal_of_text("{\n \"name\": \"a\",\n}"), "exp.json: line 3, column 1: syntax error");
  EXPECT_HAS(refusal_of_text("// a comment\n{}"), "line 1, column 1");
  EXPECT_HAS(refusal_of_text("{\"a\": NaN}"), "line 1");
  EXPECT_HAS(refusal_of_text(""), "line 1, column 1");
  EXPECT_HAS(refusal_of_text("[]"), "the file: must be an object, is an array");
  EXPECT_HAS(refusal_of_text("{\"name\": \"a\", \"name\": \"b\"}"), "the key \"name\" stands twice");
  EXPECT_HAS(refusal(smallest(), "/train/clip_norm", "1e400"),
             "train.clip_norm: must be a number, is a string");
  std::string text = smallest().dump();
  text.insert(text.find("\"steps\":") + 8, "99999999999999999999");
  EXPECT_HAS(refusal_of_text(text), "does not fit 64 bits");
}

TEST(ExperimentFile, RandomDamageNeverCrashes) {
  const std::string whole = with_sources().dump(1);
  std::uint32_t random = 1;
  for (int i = 0; i < 3000; ++i) {
    std::string text = whole;
    for (int edits = 0; edits < 3; ++edits) {
      random = random * 1664525U + 1013904223U;
      text[(random >> 8) % text.size()] = static_cast<char>(random >> 3);
    }
    try {
      parse_experiment(text, "/conf", "x");
    } catch (const ConfigError&) {
    }
  }
}

TEST(ExperimentFile, FilesInTheWay) {
  const ScratchDirectory directory;
  EXPECT_HAS(message_of<ConfigError>([&] { load_experiment(directory.file("none.json")); }),
             "no such experiment file");
  EXPECT_HAS(message_of<ConfigError>([&] { load_experiment(directory.path()); }), "is a directory");
  ASSERT_EQ(::mkfifo(directory.file("pipe").c_str(), 0600), 0);
  EXPECT_HAS(message_of<ConfigError>([&] { load_experiment(directory.file("pipe")); }), "not a regular file");
  const std::string large = directory.file("large.json");
  write_bytes(large, "{}");
  std::filesystem::resize_file(large, 100 << 20);
  EXPECT_HAS(message_of<ConfigError>([&] { load_experiment(large); }), "Is it the right file?");
  const std::string good = directory.file("good.json");
  write_bytes(good, "\xEF\xBB\xBF" + with_sources().dump());
  const Experiment experiment = load_experiment(good);
  EXPECT_EQ(experiment.data.tokenizer, directory.file("tok.json"));
  EXPECT_EQ(experiment.origin, good);
}

TEST(ConfigDifferences, NameTheKeyAndBothValues) {
  const std::string before = parse(with_sources()).effective_json();
  EXPECT_TRUE(config_differences(before, before).empty());
  json changed = with_sources();
  changed["train"]["lr"]["peak"] = 1e-3;
  changed["data"]["sources"][1]["cap"] = 0.5;
  changed["data"]["sources"][0].erase("eval");
  changed["samples"]["prompts"] = {"a", "b"};
  EXPECT_EQ(config_differences(before, parse(changed).effective_json()),
            (std::vector<std::string>{
                "data.sources[0].eval: a file -> (absent)", "data.sources[1].cap: 1.0 -> 0.5",
                "samples.prompts: [\"\"] -> [\"a\",\"b\"]", "train.lr.peak: 0.0003 -> 0.001"}));
}

TEST(ConfigDifferences, ARunThatMovedIsTheSameRun) {
  const std::string here = parse(with_sources()).effective_json();
  const std::string there = parse_experiment(with_sources().dump(), "/moved", "x").effective_json();
  EXPECT_NE(here, there);
  EXPECT_TRUE(config_differences(here, there).empty());
}

TEST(Nearest, FindsMisspellings) {
  const std::vector<std::string> keys{"steps", "batch_size", "micro_batches", "lr"};
  EXPECT_EQ(nearest("stpes", keys), "steps");
  EXPECT_EQ(nearest("batchsize", keys), "batch_size");
  EXPECT_EQ(nearest("micro_batch", keys), "micro_batches");
  EXPECT_EQ(nearest("colour", keys), "");
  EXPECT_EQ(nearest("", keys), "");
  EXPECT_EQ(edit_distance("ab", "ba"), 1U);
  EXPECT_EQ(edit_distance("", "abc"), 3U);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3U);
}

}  // namespace
}  // namespace andrea
