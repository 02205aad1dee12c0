// andrea._core.Tokenizer and its streaming decoder.
#include "tokenizer/tokenizer.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <limits>
#include <memory>
#include <utility>

#include "bindings/topics.h"
#include "tokenizer/encode_batch.h"

namespace nb = nanobind;

namespace andrea {
namespace {

using IdsIn = nb::ndarray<const std::int32_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using WideIdsIn = nb::ndarray<const std::int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

constexpr const char* kLossless = "andrea-surrogates";

// The bytes of a str or bytes object. A str with lone surrogates has no UTF-8 of its own: `holder` then keeps
// the bytes that "surrogatepass" writes for it.
std::string_view bytes_of(nb::handle text, nb::object& holder) {
  holder = nb::borrow(text);
  if (PyUnicode_Check(text.ptr())) {
    Py_ssize_t size = 0;
    if (const char* data = PyUnicode_AsUTF8AndSize(text.ptr(), &size))
      return {data, static_cast<std::size_t>(size)};
    if (!PyErr_ExceptionMatches(PyExc_UnicodeEncodeError)) nb::raise_python_error();
    PyErr_Clear();
    holder = nb::steal(PyUnicode_AsEncodedString(text.ptr(), "utf-8", "surrogatepass"));
    if (!holder.is_valid()) nb::raise_python_error();
  } else if (!PyBytes_Check(text.ptr())) {
    throw nb::type_error("text must be str or bytes");
  }
  return {PyBytes_AS_STRING(holder.ptr()), static_cast<std::size_t>(PyBytes_GET_SIZE(holder.ptr()))};
}

nb::object text_of(const std::string& bytes) {
  nb::object text =
      nb::steal(PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), kLossless));
  if (!text.is_valid()) nb::raise_python_error();
  return text;
}

// Codec error handler: a surrogate written in three bytes becomes that surrogate again, anything else U+FFFD.
nb::tuple decode_surrogate(nb::handle error) {
  nb::bytes data(error.attr("object"));
  const auto start = nb::cast<std::size_t>(error.attr("start"));
  const auto* p = reinterpret_cast<const unsigned char*>(data.c_str()) + start;
  if (start + 3 <= data.size() && p[0] == 0xED && (p[1] & 0xE0U) == 0xA0U && (p[2] & 0xC0U) == 0x80U) {
    const int code_point = 0xD000 | (p[1] & 0x3F) << 6 | (p[2] & 0x3F);
    return nb::make_tuple(nb::steal(PyUnicode_FromOrdinal(code_point)), start + 3);
  }
  return nb::make_tuple(nb::str("\xEF\xBF\xBD"), error.attr("end"));
}

template <class T>
nb::ndarray<nb::numpy, T, nb::ndim<1>> to_numpy(std::vector<T>&& values) {
  auto owned = std::make_unique<std::vector<T>>(std::move(values));
  T* data = owned->data();
  const std::size_t size = owned->size();
  nb::capsule owner(owned.release(), [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return nb::ndarray<nb::numpy, T, nb::ndim<1>>(data, {size}, owner);
}

// Ids from an int32 array as they are, from anything else (lists, other integer types) by way of numpy.
template <class Use>
auto with_ids(nb::handle ids, Use use) {
  IdsIn narrow;
  if (nb::try_cast<IdsIn>(nb::borrow(ids), narrow, false)) return use(narrow.data(), narrow.shape(0));
  const nb::object numpy = nb::module_::import_("numpy");
  nb::object array = numpy.attr("atleast_1d")(numpy.attr("asarray")(ids));
  const auto kind = nb::cast<std::string>(array.attr("dtype").attr("kind"));
  if (kind != "i" && kind != "u" && nb::cast<std::size_t>(array.attr("size")) > 0)
    throw nb::type_error("token ids must be integers");
  if (nb::cast<std::size_t>(array.attr("ndim")) != 1)
    throw nb::value_error("token ids must be one id or a sequence of ids, not a table");
  array = numpy.attr("ascontiguousarray")(array, numpy.attr("int64"));
  const auto wide = nb::cast<WideIdsIn>(array);
  std::vector<std::int32_t> copy(wide.shape(0));
  for (std::size_t i = 0; i < copy.size(); ++i) {
    // What does not fit 32 bits is out of range for every vocabulary; -1 lets the decoder say where.
    const std::int64_t id = wide.data()[i];
    copy[i] = id < 0 || id > std::numeric_limits<std::int32_t>::max() ? -1 : static_cast<std::int32_t>(id);
  }
  return use(static_cast<const std::int32_t*>(copy.data()), copy.size());
}

nb::bytes to_bytes(const std::string& text) { return nb::bytes(text.data(), text.size()); }

std::string decode_ids(const Tokenizer& tokenizer, nb::handle ids) {
  return with_ids(ids, [&](const std::int32_t* data, std::size_t n) {
    const nb::gil_scoped_release release;
    return tokenizer.decode(data, n);
  });
}

nb::object encode_one(const Tokenizer& tokenizer, nb::handle text) {
  nb::object holder;
  const std::string_view bytes = bytes_of(text, holder);
  std::vector<std::int32_t> ids;
  {
    const nb::gil_scoped_release release;
    ids = tokenizer.encode(bytes);
  }
  return nb::cast(to_numpy(std::move(ids)));
}

nb::object encode_many(const Tokenizer& tokenizer, nb::handle texts, int threads) {
  // A str is a sequence of strs too; a list of single letters is never what the caller meant.
  if (PyUnicode_Check(texts.ptr()) || PyBytes_Check(texts.ptr()))
    throw nb::type_error("encode_batch takes a list of texts; for one text use encode");
  std::vector<nb::object> holders;
  std::vector<std::string_view> views;
  for (nb::handle text : texts) {
    holders.emplace_back();
    views.push_back(bytes_of(text, holders.back()));
  }
  EncodedBatch batch;
  {
    const nb::gil_scoped_release release;
    batch = encode_batch(tokenizer, views, threads);
  }
  return nb::make_tuple(to_numpy(std::move(batch.ids)), to_numpy(std::move(batch.offsets)));
}

Tokenizer from_python_segments(nb::handle segments) {
  std::vector<std::string> list;
  for (nb::handle segment : segments) {
    nb::object holder;
    list.emplace_back(bytes_of(segment, holder));
  }
  return Tokenizer::from_segments(std::move(list));
}

}  // namespace

void init_tokenizer(nb::module_& m) {
  PyCodec_RegisterError(kLossless, nb::cpp_function(&decode_surrogate).ptr());

  nb::class_<Tokenizer>(m, "Tokenizer", "A Harris vocabulary: greedy longest match over bytes, and back.")
      .def_static("load", &Tokenizer::load, nb::arg("path"), nb::call_guard<nb::gil_scoped_release>(),
                  "Read harris_segments.json. IoError or DataError says what is wrong.")
      .def_static("from_segments", &from_python_segments, nb::arg("segments"),
                  nb::sig("def from_segments(segments: collections.abc.Iterable[str | bytes]) -> Tokenizer"),
                  "A vocabulary of these segments (str or bytes) in id order, from id 257.")
      .def("save", &Tokenizer::save, nb::arg("path"), nb::call_guard<nb::gil_scoped_release>(),
           "Write harris_segments.json durably (temporary file, fsync, rename).")
      .def("encode", &encode_one, nb::arg("text"),
           nb::sig("def encode(self, text: str | bytes) -> numpy.typing.NDArray[numpy.int32]"),
           "Ids of a str or bytes as int32, without BOS.")
      .def(
          "encode_batch", &encode_many, nb::arg("texts"), nb::arg("threads") = 0,
          nb::sig("def encode_batch(self, texts: collections.abc.Iterable[str | bytes], threads: int = 0) -> "
                  "tuple[numpy.typing.NDArray[numpy.int32], numpy.typing.NDArray[numpy.int64]]"),
          "(ids, offsets): document i is ids[offsets[i]:offsets[i+1]]. threads=0 takes all cores.")
      .def(
          "decode", [](const Tokenizer& t, nb::handle ids) { return text_of(decode_ids(t, ids)); },
          nb::arg("ids"), nb::sig("def decode(self, ids: numpy.typing.ArrayLike) -> str"),
          "Text of ids; BOS gives nothing, bytes that are no UTF-8 become U+FFFD (decode_bytes keeps them).")
      .def(
          "decode_bytes", [](const Tokenizer& t, nb::handle ids) { return to_bytes(decode_ids(t, ids)); },
          nb::arg("ids"), nb::sig("def decode_bytes(self, ids: numpy.typing.ArrayLike) -> bytes"),
          "Bytes of ids, the exact inverse of encode.")
      .def(
          "token_bytes",
          [](const Tokenizer& t, std::int32_t id) {
            const std::string_view bytes = t.token_bytes(id);
            return nb::bytes(bytes.data(), bytes.size());
          },
          nb::arg("id"), "Bytes of one id; empty for BOS.")
      .def(
          "stream_decoder", [](const Tokenizer& t) { return StreamDecoder(t); }, nb::keep_alive<0, 1>(),
          "A decoder for ids that arrive one by one; it never gives half a character.")
      .def_prop_ro("vocab_size", &Tokenizer::vocab_size, "256 bytes + BOS + N segments.")
      .def_prop_ro("hash", &Tokenizer::hash, "XXH64 over (u32 length, bytes) of each segment.")
      .def_prop_ro(
          "bos", [](const Tokenizer&) { return Tokenizer::kBos; }, "The id that begins a document.")
      .def_prop_ro("segments", &Tokenizer::segments, "Segments in id order; segments[i] has the id 257 + i.")
      .def_prop_ro(
          "counts", [](const Tokenizer& t) { return t.table().counts; },
          "Uses of each segment in the training text.")
      .def_prop_ro(
          "training_json", [](const Tokenizer& t) { return t.table().training_json; },
          "The training fingerprint, one JSON object.")
      .def("__len__", &Tokenizer::vocab_size)
      .def("__eq__",
           [](const Tokenizer& t, nb::handle other) {
             return nb::isinstance<Tokenizer>(other) &&
                    t.segments() == nb::cast<const Tokenizer&>(other).segments();
           })
      .def("__hash__", [](const Tokenizer& t) { return static_cast<Py_hash_t>(t.hash() >> 2); })
      .def("__repr__",
           [](const Tokenizer& t) { return "Tokenizer(vocab_size=" + std::to_string(t.vocab_size()) + ")"; })
      .def("__getstate__", [](const Tokenizer& t) { return t.segments(); })
      .def("__setstate__", [](Tokenizer& t, std::vector<std::string> segments) {
        new (&t) Tokenizer(Tokenizer::from_segments(std::move(segments)));
      });

  nb::class_<StreamDecoder>(m, "StreamDecoder", "Decodes ids piece by piece, whole characters only.")
      .def(
          "push",
          [](StreamDecoder& d, nb::handle ids) {
            return text_of(with_ids(ids, [&](const std::int32_t* p, std::size_t n) { return d.push(p, n); }));
          },
          nb::arg("ids"), nb::sig("def push(self, ids: numpy.typing.ArrayLike) -> str"),
          "Take one id or several and give the text that is now complete.")
      .def(
          "finish", [](StreamDecoder& d) { return text_of(d.finish()); },
          "Give what waited: U+FFFD if the stream ended inside a character.");
}

}  // namespace andrea
