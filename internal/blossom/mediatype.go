package blossom

import (
	"mime"
	"net/http"
	"strings"
)

const octets = "application/octet-stream"

// mediaType brings a Content-Type header into one form: "type/subtype" in lower case, with a charset if there was one.
// "" for what is none.
func mediaType(header string) string {
	if len(header) > 128 {
		return ""
	}
	kind, params, err := mime.ParseMediaType(header)
	if err != nil || strings.Count(kind, "/") != 1 || strings.HasSuffix(kind, "/") || strings.HasPrefix(kind, "/") {
		return ""
	}
	if c := params["charset"]; c != "" {
		return mime.FormatMediaType(kind, map[string]string{"charset": c})
	}
	return kind
}

// typeOf is a blob's media type: what the sender says if that says anything, and else what its first bytes look like.
func typeOf(header string, head []byte) string {
	if t := mediaType(header); t != "" && t != octets {
		return t
	}
	return http.DetectContentType(head)
}

// extensions are those that a URL carries for a media type (BUD-02). The list is closed so that two machines with
// different MIME tables give the same URL.
var extensions = map[string]string{
	"application/epub+zip": ".epub", "application/gzip": ".gz", "application/json": ".json", "application/pdf": ".pdf",
	"application/vnd.android.package-archive": ".apk", "application/wasm": ".wasm", "application/x-bittorrent": ".torrent",
	"application/x-tar": ".tar", "application/zip": ".zip", "application/zstd": ".zst",
	"audio/aac": ".aac", "audio/flac": ".flac", "audio/mp4": ".m4a", "audio/mpeg": ".mp3", "audio/ogg": ".ogg", "audio/opus": ".opus",
	"audio/wav": ".wav", "audio/wave": ".wav", "audio/webm": ".weba", "audio/x-wav": ".wav",
	"image/avif": ".avif", "image/bmp": ".bmp", "image/gif": ".gif", "image/heic": ".heic", "image/jpeg": ".jpg", "image/jxl": ".jxl",
	"image/png": ".png", "image/svg+xml": ".svg", "image/tiff": ".tif", "image/webp": ".webp", "image/x-icon": ".ico",
	"text/css": ".css", "text/csv": ".csv", "text/html": ".html", "text/javascript": ".js", "text/markdown": ".md", "text/plain": ".txt",
	"text/xml": ".xml", "video/mp2t": ".ts", "video/mp4": ".mp4", "video/mpeg": ".mpeg", "video/ogg": ".ogv", "video/quicktime": ".mov",
	"video/webm": ".webm", "video/x-matroska": ".mkv", "application/vnd.apple.mpegurl": ".m3u8", "application/x-mpegurl": ".m3u8",
}

func extension(kind string) string {
	base, _, _ := strings.Cut(kind, ";")
	if e := extensions[strings.TrimSpace(base)]; e != "" {
		return e
	}
	return ".bin"
}

// active tells whether a browser may run what a blob of this type holds. Such a blob is served in a sandbox, because it comes
// from the same origin as everything else on this host.
func active(kind string) bool {
	base, _, _ := strings.Cut(kind, ";")
	return strings.Contains(base, "html") || strings.Contains(base, "xml") || strings.Contains(base, "script")
}
