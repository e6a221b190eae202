package blossom

import (
	"bytes"
	"context"
	"encoding/binary"
	"strings"
)

// Strip is the Converter that a node can offer without decoding anything: it takes out of JPEG and PNG files what says where,
// when and with what a picture was taken (EXIF, XMP, IPTC, comments, text), and leaves the picture's own bytes as they are. Colour
// profiles stay, and so does the orientation of a JPEG, in an EXIF segment that says nothing else.
type Strip struct{}

// Convert is Converter's.
func (Strip) Convert(_ context.Context, in []byte, kind string) ([]byte, string, error) {
	base, _, _ := strings.Cut(kind, ";")
	switch {
	case base == "image/jpeg" || bytes.HasPrefix(in, []byte{0xff, 0xd8, 0xff}):
		out, err := stripJPEG(in)
		return out, "image/jpeg", err
	case base == "image/png" || bytes.HasPrefix(in, pngHead):
		out, err := stripPNG(in)
		return out, "image/png", err
	}
	return nil, "", ErrUnsupported
}

var pngHead = []byte("\x89PNG\r\n\x1a\n")

// pngKeep are the chunks that a picture is made of; letters in lower case first mean that viewers may do without.
const pngKeep = "IHDR PLTE IDAT IEND tRNS gAMA cHRM sRGB iCCP cICP sBIT pHYs bKGD hIST acTL fcTL fdAT mDCV cLLI"

// stripPNG copies the chunks that it knows to be of the picture (PNG, third edition), and drops what comes after the end.
func stripPNG(in []byte) ([]byte, error) {
	if !bytes.HasPrefix(in, pngHead) {
		return nil, ErrMalformed
	}
	out := append(make([]byte, 0, len(in)), pngHead...)
	for rest := in[len(pngHead):]; len(rest) >= 12; {
		n := uint64(binary.BigEndian.Uint32(rest)) + 12
		if n > uint64(len(rest)) {
			return nil, ErrMalformed
		}
		name := string(rest[4:8])
		if strings.Contains(pngKeep, name) && !strings.Contains(name, " ") {
			out = append(out, rest[:n]...)
		} else if name[0] >= 'A' && name[0] <= 'Z' {
			return nil, ErrMalformed // a critical chunk that nobody here knows
		}
		if name == "IEND" {
			return out, nil
		}
		rest = rest[n:]
	}
	return nil, ErrMalformed
}

// stripJPEG copies all segments but those of metadata, up to the end of the image (ITU-T T.81, annex B).
func stripJPEG(in []byte) ([]byte, error) {
	if !bytes.HasPrefix(in, []byte{0xff, 0xd8}) {
		return nil, ErrMalformed
	}
	out := append(make([]byte, 0, len(in)), in[:2]...)
	turned := false
	for rest := in[2:]; ; {
		for len(rest) > 1 && rest[0] == 0xff && rest[1] == 0xff { // fill bytes
			rest = rest[1:]
		}
		if len(rest) < 2 || rest[0] != 0xff {
			return nil, ErrMalformed
		}
		marker := rest[1]
		if marker == 0xd9 {
			return append(out, rest[:2]...), nil
		}
		if len(rest) < 4 || int(binary.BigEndian.Uint16(rest[2:])) < 2 || int(binary.BigEndian.Uint16(rest[2:]))+2 > len(rest) {
			return nil, ErrMalformed
		}
		segment := rest[:int(binary.BigEndian.Uint16(rest[2:]))+2]
		rest = rest[len(segment):]
		switch {
		case marker == 0xda: // the scan and its entropy-coded bytes
			n := scanEnd(rest)
			out = append(append(out, segment...), rest[:n]...)
			rest = rest[n:]
		case marker == 0xe1:
			if o := orientation(segment[4:]); o > 1 && !turned {
				out, turned = append(out, orientedSegment(o)...), true
			}
		case keepSegment(marker, segment[4:]):
			out = append(out, segment...)
		}
	}
}

// keepSegment tells the segments of a picture from those of metadata: of the application's own only JFIF, colour profiles and Adobe's
// colour transform are the picture's.
func keepSegment(marker byte, data []byte) bool {
	switch {
	case marker == 0xfe:
		return false
	case marker == 0xe0:
		return bytes.HasPrefix(data, []byte("JFIF\x00"))
	case marker == 0xe2:
		return bytes.HasPrefix(data, []byte("ICC_PROFILE\x00"))
	case marker == 0xee:
		return bytes.HasPrefix(data, []byte("Adobe"))
	}
	return marker < 0xe0 || marker > 0xef
}

// scanEnd returns where the entropy-coded bytes end: at the next marker that is neither stuffing nor a restart.
func scanEnd(b []byte) int {
	for i := 0; i+1 < len(b); i++ {
		if b[i] == 0xff && b[i+1] != 0 && (b[i+1] < 0xd0 || b[i+1] > 0xd7) && b[i+1] != 0xff {
			return i
		}
	}
	return len(b)
}

// orientation reads tag 0x0112 from the first directory of an EXIF segment; 0 if there is none.
func orientation(data []byte) byte {
	tiff, ok := bytes.CutPrefix(data, []byte("Exif\x00\x00"))
	if !ok || len(tiff) < 8 {
		return 0
	}
	var order binary.ByteOrder = binary.BigEndian
	if tiff[0] == 'I' {
		order = binary.LittleEndian
	}
	at := uint64(order.Uint32(tiff[4:]))
	if at+2 > uint64(len(tiff)) {
		return 0
	}
	count := uint64(order.Uint16(tiff[at:]))
	for i := range count {
		e := at + 2 + 12*i
		if e+12 > uint64(len(tiff)) {
			return 0
		}
		if order.Uint16(tiff[e:]) == 0x0112 {
			if v := order.Uint16(tiff[e+8:]); v <= 8 {
				return byte(v)
			}
			return 0
		}
	}
	return 0
}

// orientedSegment is an EXIF segment with an orientation and nothing else.
func orientedSegment(o byte) []byte {
	body := append([]byte("Exif\x00\x00MM\x00*\x00\x00\x00\x08\x00\x01\x01\x12\x00\x03\x00\x00\x00\x01\x00"), o)
	body = append(body, 0, 0, 0, 0, 0, 0)
	return append(binary.BigEndian.AppendUint16([]byte{0xff, 0xe1}, uint16(len(body)+2)), body...)
}
