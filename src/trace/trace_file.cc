#include "dhisparse/trace_file.h"

#include <cerrno>
#include <cstring>

#include "trace/trace_codec.h"

namespace dhs {
namespace {

absl::Status file_error(const char* verb, const std::string& path, int error) {
  return absl::ErrnoToStatus(error, absl::StrCat("cannot ", verb, " trace file ", path));
}

absl::Status damaged_header(const std::string& path, const absl::Status& status) {
  return {status.code(), absl::StrCat(path, ": ", status.message(),
                                      "; give a file that residency.trace wrote, or record again")};
}

// What to do is the same for every kind of damage: what lies before it is good.
absl::Status damaged_frame(const std::string& path, int64_t offset, absl::string_view what) {
  return absl::DataLossError(absl::StrCat(
      path, ": the selection at byte ", offset, " is damaged: ", what,
      "; record again, or keep what lies before it with 'truncate -s ", offset, " ", path, "'"));
}

}  // namespace

// ---- TraceWriter --------------------------------------------------------------------------------

TraceWriter::TraceWriter(std::string path, TraceShape shape, File file)
    : path_(std::move(path)), shape_(shape), file_(std::move(file)) {}

absl::StatusOr<TraceWriter> TraceWriter::create(const std::string& path, TraceShape shape) {
  const std::string header = trace::encode_header(shape);
  const absl::StatusOr<TraceShape> readable = trace::decode_header(header);
  if (!readable.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("trace file ", path, ": ", readable.status().message()));
  }
  File file(std::fopen(path.c_str(), "wb"), &std::fclose);
  if (file == nullptr) return file_error("create", path, errno);
  if (std::fwrite(header.data(), 1, header.size(), file.get()) != header.size()) {
    return file_error("write", path, errno);
  }
  TraceWriter writer(path, shape, std::move(file));
  writer.num_bytes_ = static_cast<int64_t>(header.size());
  return writer;
}

absl::Status TraceWriter::append(const TracedSelection& selection) {
  DHS_CHECK(file_ != nullptr, "trace file ", path_, " is closed");
  DHS_RETURN_IF_ERROR(trace::check_selection(selection, shape_));
  frame_.clear();
  trace::encode_frame(selection, frame_);
  num_bytes_ += static_cast<int64_t>(frame_.size());
  if (std::fwrite(frame_.data(), 1, frame_.size(), file_.get()) == frame_.size()) {
    return absl::OkStatus();
  }
  return file_error("write", path_, errno);
}

absl::Status TraceWriter::close() {
  if (file_ == nullptr) return absl::OkStatus();
  if (std::fclose(file_.release()) == 0) return absl::OkStatus();
  return file_error("write", path_, errno);
}

// ---- TraceReader --------------------------------------------------------------------------------

TraceReader::TraceReader(std::string path, File file)
    : path_(std::move(path)), file_(std::move(file)) {}

absl::StatusOr<TraceReader> TraceReader::open(const std::string& path) {
  File file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (file == nullptr) return file_error("open", path, errno);
  TraceReader reader(path, std::move(file));
  std::string header(trace::kHeaderBytes, '\0');
  DHS_ASSIGN_OR_RETURN(const size_t num_read, reader.read(header, 0));
  if (num_read < header.size()) {
    return damaged_header(path, absl::DataLossError(absl::StrCat(
                                    "it has ", num_read, " bytes, a header has ", header.size())));
  }
  const absl::StatusOr<TraceShape> shape = trace::decode_header(header);
  if (!shape.ok()) return damaged_header(path, shape.status());
  reader.shape_ = *shape;
  reader.offset_ = trace::kHeaderBytes;
  return reader;
}

// Fills `bytes` from `begin` on; less only at the end of the file.
absl::StatusOr<size_t> TraceReader::read(std::string& bytes, size_t begin) {
  const size_t num_read = std::fread(bytes.data() + begin, 1, bytes.size() - begin, file_.get());
  if (std::ferror(file_.get()) != 0) return file_error("read", path_, errno);
  return num_read;
}

absl::StatusOr<bool> TraceReader::next(TracedSelection& selection) {
  frame_.assign(trace::kLengthBytes, '\0');
  DHS_ASSIGN_OR_RETURN(const size_t length_read, read(frame_, 0));
  if (length_read == 0) return false;
  if (length_read < trace::kLengthBytes) {
    return damaged_frame(path_, offset_, "the file ends within its length");
  }
  const uint32_t length = trace::read_u32(frame_);
  const size_t limit = trace::max_payload_bytes(shape_);
  if (length > limit) {
    return damaged_frame(path_, offset_,
                         absl::StrCat("its length is ", length, " bytes, the limit is ", limit));
  }
  const size_t rest = length + trace::kChecksumBytes;
  frame_.resize(trace::kLengthBytes + rest);
  DHS_ASSIGN_OR_RETURN(const size_t num_read, read(frame_, trace::kLengthBytes));
  if (num_read < rest) {
    return damaged_frame(path_, offset_,
                         absl::StrCat("the file ends ", rest - num_read, " bytes too early"));
  }
  const absl::Status status = trace::decode_frame(frame_, shape_, selection);
  if (!status.ok()) return damaged_frame(path_, offset_, status.message());
  offset_ += static_cast<int64_t>(frame_.size());
  return true;
}

}  // namespace dhs
