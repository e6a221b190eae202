// Package s3 keeps blobs in a bucket of any store that speaks Amazon's S3 protocol (MinIO, Garage, Ceph, R2, …).
package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"net/http"
	"net/url"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"fleetmesh.org/fleetmesh/internal/blossom"
)

// Config says which bucket.
type Config struct {
	Endpoint string // URL of the store, such as https://s3.eu-central-1.amazonaws.com
	Bucket   string // it must be there
	Prefix   string // before every name, such as "fleetmesh/"
	Region   string // "": the store's own
	// Credentials is a file in the form of ~/.aws/credentials; "": AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in the environment.
	Credentials string
	Transport   http.RoundTripper // nil: the default
}

// Bucket is a blossom.Objects.
type Bucket struct {
	client *minio.Client
	bucket string
	prefix string
}

var _ blossom.Objects = (*Bucket)(nil)

// Open reaches a bucket, and fails if it is not there or not ours to use.
func Open(ctx context.Context, c Config) (*Bucket, error) {
	u, err := url.Parse(c.Endpoint)
	if err != nil || (u.Scheme != "https" && u.Scheme != "http") || u.Host == "" || strings.Trim(u.Path, "/") != "" {
		return nil, fmt.Errorf("the endpoint %q is no URL such as https://s3.example.org", c.Endpoint)
	}
	keys := credentials.NewEnvAWS()
	if c.Credentials != "" {
		keys = credentials.NewFileAWSCredentials(c.Credentials, "")
	}
	client, err := minio.New(u.Host, &minio.Options{Creds: keys, Secure: u.Scheme == "https", Region: c.Region, Transport: c.Transport})
	if err != nil {
		return nil, fmt.Errorf("set up the client of %s: %w", u.Host, err)
	}
	there, err := client.BucketExists(ctx, c.Bucket)
	if err != nil {
		return nil, fmt.Errorf("reach the bucket %q at %s: %w", c.Bucket, u.Host, err)
	}
	if !there {
		return nil, fmt.Errorf("there is no bucket %q at %s: make it first", c.Bucket, u.Host)
	}
	return &Bucket{client, c.Bucket, c.Prefix}, nil
}

// maxPut is the largest object that S3 takes in one request, in octets.
const maxPut = 5 << 30

// Put implements blossom.Objects. It is one request, signed over the hash that is known already, so the store refuses bytes that were spoilt on
// their way. The bucket is told the hash as x-amz-meta-sha256 too, for those who look into it by other means.
func (b *Bucket) Put(ctx context.Context, name string, r io.ReadSeeker, size int64, sum blossom.Hash) error {
	if size > maxPut {
		return fmt.Errorf("put: %w: %d octets, and S3 takes %d in one request: lower spec.blobs.maxBlobBytes", blossom.ErrTooLarge, size, int64(maxPut))
	}
	core := minio.Core{Client: b.client}
	info, err := core.PutObject(ctx, b.bucket, b.prefix+name, r, size, "", sum.String(), minio.PutObjectOptions{
		ContentType: "application/octet-stream", UserMetadata: map[string]string{"sha256": sum.String()}, DisableContentSha256: true,
	})
	if err != nil {
		return fmt.Errorf("put: %w", full(err))
	}
	if info.Size != size {
		return fmt.Errorf("put: the bucket took %d octets of %d", info.Size, size)
	}
	return nil
}

// full makes a bucket without room the same to callers as a full quota.
func full(err error) error {
	switch minio.ToErrorResponse(err).Code {
	case "QuotaExceeded", "XMinioAdminBucketQuotaExceeded", "XMinioStorageFull", "InsufficientStorage":
		return fmt.Errorf("%w: %w", blossom.ErrFull, err)
	}
	return err
}

// absent makes a missing object fs.ErrNotExist.
func absent(err error) error {
	if code := minio.ToErrorResponse(err).Code; code == minio.NoSuchKey || code == "NotFound" {
		return errors.Join(fs.ErrNotExist, err)
	}
	return err
}

// Stat implements blossom.Objects.
func (b *Bucket) Stat(ctx context.Context, name string) (blossom.Object, error) {
	info, err := b.client.StatObject(ctx, b.bucket, b.prefix+name, minio.StatObjectOptions{})
	if err != nil {
		return blossom.Object{}, fmt.Errorf("stat: %w", absent(err))
	}
	return blossom.Object{Name: name, Size: info.Size, Modified: info.LastModified}, nil
}

// Get implements blossom.Objects.
func (b *Bucket) Get(ctx context.Context, name string, offset int64) (io.ReadCloser, error) {
	var opt minio.GetObjectOptions
	if offset > 0 {
		if err := opt.SetRange(offset, 0); err != nil {
			return nil, fmt.Errorf("get: %w", err)
		}
	}
	core := minio.Core{Client: b.client}
	body, _, _, err := core.GetObject(ctx, b.bucket, b.prefix+name, opt)
	if err != nil {
		return nil, fmt.Errorf("get: %w", absent(err))
	}
	return body, nil
}

// Remove implements blossom.Objects.
func (b *Bucket) Remove(ctx context.Context, name string) error {
	err := absent(b.client.RemoveObject(ctx, b.bucket, b.prefix+name, minio.RemoveObjectOptions{}))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove: %w", err)
	}
	return nil
}

// List implements blossom.Objects.
func (b *Bucket) List(ctx context.Context, prefix string) iter.Seq2[blossom.Object, error] {
	return func(yield func(blossom.Object, error) bool) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		for o := range b.client.ListObjects(ctx, b.bucket, minio.ListObjectsOptions{Prefix: b.prefix + prefix, Recursive: true}) {
			if o.Err != nil {
				yield(blossom.Object{}, o.Err)
				return
			}
			if !yield(blossom.Object{Name: strings.TrimPrefix(o.Key, b.prefix), Size: o.Size, Modified: o.LastModified}, nil) {
				return
			}
		}
	}
}
